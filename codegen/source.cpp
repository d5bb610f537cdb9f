// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes the unit that NVRTC compiles. Everything in it comes from the spec.
#include "codegen/source.h"

#include "codegen/base/text.h"

namespace lathe {
namespace {

std::string config_member(const Constant& constant) {
  switch (constant.kind) {
    case Constant::Kind::type:
      return text("  using ", constant.member, " = ",
                  info(static_cast<Dtype>(constant.value)).device_type, ";\n");
    case Constant::Kind::integer:
      return text("  static constexpr int ", constant.member, " = ", constant.value, ";\n");
    case Constant::Kind::flag:
      return text("  static constexpr bool ", constant.member, " = ",
                  constant.value != 0 ? "true" : "false", ";\n");
  }
  return {};
}

// The struct Config and all that it needs.
std::string config(const KernelSpec& spec) {
  std::string members;
  for (const Constant& constant : spec.constants) members += config_member(constant);
  members += text("  static constexpr int kThreads = ", spec.threads,
                  ", kSmemBytes = ", spec.smem_bytes, ";\n};\n");
  if (spec.snippets.empty()) return "using namespace lathe;\nstruct Config {\n" + members;
  std::string adapters, types;
  for (const Snippet& snippet : spec.snippets) {
    adapters += "#include \"" + snippet.adapter() + "\"\n";
    types += " using " + snippet.type() + " = lathe::" + snippet.type() + ";";
  }
  return "namespace lathe {\nstruct Constants {\n" + members + "}\n" + adapters +
         "using namespace lathe;\nstruct Config : Constants {" + types + " };\n";
}

}  // namespace

std::string emit_unit(const KernelSpec& spec, const std::string& arch) {
  std::string smem_assert;
  if (!spec.smem.empty()) {
    smem_assert = text("static_assert(", spec.smem,
                       "<Config>::kBytes == Config::kSmemBytes, \"host and device disagree on "
                       "shared memory\");\n");
  }
  // One block per multiprocessor is asked for explicitly: left to itself, ptxas spills a few bytes
  // to reach the next step of occupancy.
  return text("// ", spec.text(), " arch=", arch, "\n#include \"", spec.source, "\"\n",
              config(spec), "static_assert(sizeof(", spec.params, ") == ", spec.params_bytes,
              ", \"host and device disagree on ", spec.params,
              "\");\nstatic_assert(__INTADDR__(&((", spec.params, "*)0)->", spec.last_field,
              ") == ", spec.last_field_offset, ", \"host and device disagree on ", spec.params,
              "::", spec.last_field, "\");\n", smem_assert,
              "extern \"C\" __global__ void __launch_bounds__(Config::kThreads, 1)\nentry(",
              "const __grid_constant__ ", spec.params, " p) { ", spec.kernel, "<Config>(p); }\n");
}

}  // namespace lathe
