// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes the unit that NVRTC compiles. Everything in it comes from the spec.
#include "codegen/source.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "codegen/kernel_text.h"

namespace lathe {
namespace {

// Every start from disk emits each unit again to find its key: strings are appended, not streamed.
void append(std::string* to, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) *to += part;
}

// `own`: for a kernel of a caller, outside of namespace lathe.
void append_member(std::string* to, const Constant& constant, bool own = false) {
  switch (constant.kind) {
    case Constant::Kind::type: {
      const auto dtype = static_cast<Dtype>(constant.value);
      return append(to, {"  using ", constant.member, " = ",
                         own ? scoped_device_type(dtype) : info(dtype).device_type, ";\n"});
    }
    case Constant::Kind::integer:
      return append(to, {"  static constexpr int ", constant.member, " = ",
                         std::to_string(constant.value), ";\n"});
    case Constant::Kind::flag:
      return append(to, {"  static constexpr bool ", constant.member, " = ",
                         constant.value != 0 ? "true" : "false", ";\n"});
  }
}

std::string config_of(const KernelSpec& spec) {
  std::string members, types;
  const bool apart = !spec.mods.empty();  // in Constants, which the Config has as well
  for (const Constant& constant : spec.constants) {
    if (!apart || !constant.is_capture()) append_member(&members, constant);
  }
  for (const Mod& mod : spec.mods) {
    append(&types, {"  using ", mod.type(), " = lathe::", mod.type(), ";\n"});
  }
  append(&members, {"  static constexpr int kThreads = ", std::to_string(spec.threads),
                    ", kSmemBytes = ", std::to_string(spec.smem_bytes), ";\n"});
  return std::string("using namespace lathe;\nstruct Config ") +
         (apart ? ": Constants {\n" : "{\n") + members + types + "};\n";
}

// Mods come before anything that only some kernels have: what a mod sees, and so what it
// is, is the same in all that include it.
std::string before_source(const KernelSpec& spec) {
  if (spec.mods.empty()) return {};
  std::string captures, adapters;
  for (const Constant& constant : spec.constants) {
    if (constant.is_capture()) append_member(&captures, constant);
  }
  for (const Mod& mod : spec.mods) {
    append(&adapters, {"#include \"", mod.adapter(), "\"\n"});
  }
  return std::string("#include \"") + spec.loads + "\"\nnamespace lathe {\nstruct Constants {\n" +
         captures + "};\n}\n" + adapters;
}

void append_params_asserts(std::string* unit, const KernelSpec& spec) {
  const std::string &params = spec.params, &last = spec.last_field;
  append(unit, {"static_assert(sizeof(", params, ") == ", std::to_string(spec.params_bytes),
                ", \"host and device disagree on ", params, "\");\n"});
  append(unit, {"static_assert(__INTADDR__(&((", params, "*)0)->", last,
                ") == ", std::to_string(spec.last_field_offset), ", \"host and device disagree on ",
                params, "::", last, "\");\n"});
}

// A kernel of a caller: its text knows the parameters and nothing else of the unit. Names that the
// description gives are the Config's; block and shared memory are there under lathe's names, unless
// these are taken.
std::string emit_own_unit(const KernelSpec& spec, std::string_view spec_text,
                          const std::string& arch) {
  std::string unit;
  append(&unit, {"// ", spec_text, " arch=", arch, "\n", spec.before, "#include \"",
                 spec.own()->header(), "\"\nstruct Config {\n"});
  for (const Constant& each : spec.constants) append_member(&unit, each, true);
  const std::pair<const char*, int> sizes[] = {{"kThreads", spec.threads},
                                               {"kSmemBytes", spec.smem_bytes}};
  for (const auto& [name, value] : sizes) {
    const auto same = [&](const Constant& each) { return each.member == name; };
    if (std::any_of(spec.constants.begin(), spec.constants.end(), same)) continue;
    append_member(&unit, Constant::integer(name, name, value));
  }
  append(&unit, {"};\n"});
  append_params_asserts(&unit, spec);
  append(&unit, {"extern \"C\" __global__ void __launch_bounds__(", std::to_string(spec.threads),
                 ", ", std::to_string(spec.min_blocks), ")\nentry(const __grid_constant__ ",
                 spec.params, " p) { ::", spec.source, "<Config>(p); }\n"});
  return unit;
}

}  // namespace

std::string emit_unit(const KernelSpec& spec, const std::string& arch) {
  return emit_unit(spec, spec.text(), arch);
}

std::string emit_unit(const KernelSpec& spec, std::string_view spec_text, const std::string& arch) {
  if (spec.own() != nullptr) return emit_own_unit(spec, spec_text, arch);
  std::string unit;
  unit.reserve(4096);
  append(&unit, {"// ", spec_text, " arch=", arch, "\n", before_source(spec)});
  append(&unit, {"#include \"", spec.source, "\"\n", config_of(spec)});
  append_params_asserts(&unit, spec);
  if (!spec.smem.empty()) {
    append(&unit, {"static_assert(", spec.smem,
                   "<Config>::kBytes == Config::kSmemBytes, \"host and device disagree on "
                   "shared memory\");\n"});
  }
  // One block per multiprocessor is asked for explicitly, where a spec asks for no more: left to
  // itself, ptxas spills a few bytes to reach the next step of occupancy.
  // With mods it is in a namespace, so that no type that they know leads to its name.
  const bool inside = !spec.mods.empty();
  append(&unit, {inside ? "namespace lathe {\n" : "",
                 "extern \"C\" __global__ void __launch_bounds__(Config::kThreads, ",
                 std::to_string(spec.min_blocks), ")\nentry(", "const __grid_constant__ ",
                 spec.params, " p) { ", spec.kernel, "<Config>(p); }\n", inside ? "}\n" : ""});
  return unit;
}

}  // namespace lathe
