// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compiles a mod alone. Its text stands where it stands in a kernel, behind the same tokens,
// and names nothing that is declared behind it: it is the same function there. In the PTX of its
// probe every load, store and call is the mod's own but for the marked stores of its results.
#include <cstddef>

#include "codegen/base/text.h"
#include "codegen/mods.h"
#include "codegen/source.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

// A compiler that is told of fewer would know of threadIdx what is not so in a kernel.
constexpr int kMostThreads = 1024;

// The assertion of an adapter that failed, if nothing failed before it: what a mod should have
// been. Behind another error it says only that a function was not understood.
std::string failed_assertion(const std::string& log) {
  const std::string_view mark = "static assertion failed with \"must ";
  const size_t at = log.find(mark), error = log.find("error: ");
  if (at == log.npos || error + std::string_view("error: ").size() < at) return {};
  const size_t from = at + mark.size() - std::string_view("must ").size();
  return log.substr(from, log.find('"', from) - from);
}

}  // namespace

KernelSpec mod_probe_spec(const KernelSpec& spec, const Mod& mod) {
  KernelSpec probe;
  probe.kernel = "mod_probe";
  probe.source = "attention/mods/mod_probe.cuh";
  probe.params = "ModProbeParams";
  probe.params_bytes = sizeof(ModProbeParams);
  probe.last_field = "kv_idx";
  probe.last_field_offset = offsetof(ModProbeParams, kv_idx);
  probe.threads = kMostThreads;
  probe.loads = "attention/mods/probe_loads.cuh";
  for (const Constant& constant : spec.constants) {
    if (constant.is_capture()) probe.constants.push_back(constant);
  }
  probe.constants.push_back(Constant::flag("masks", "kMasks", mod.name == "mask_mod"));
  // All that stands before it in a kernel: it is the last.
  for (const Mod& each : spec.mods) {
    probe.mods.push_back(each);
    if (each.name == mod.name) break;
  }
  return probe;
}

Status probe_mod(const KernelSpec& probe, const Compiler& compiler, const std::string& arch) {
  const Mod& mod = probe.mods.back();
  const auto refuse = [&](const std::string& what) {
    return Status(Code::invalid_argument, text("option ", mod.name, ": ", mod.file, " ", what));
  };
  std::string log;
  const auto compiled = compiler.compile(emit_unit(probe, arch), arch, probe.mods, &log);
  if (!compiled.ok()) {
    if (log.empty()) return compiled.status();
    const std::string expected = failed_assertion(log);
    return refuse(expected.empty() ? "does not compile\n" + log : expected);
  }
  const std::string impurity = impurity_of(compiled->ptx);
  if (impurity.empty()) return {};
  return refuse(impurity +
                "; a mod is a pure function of its arguments, captures and __constant__ tables");
}

}  // namespace lathe
