// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A snippet compiled alone. Its text stands where it stands in a kernel, behind the same tokens,
// and names nothing that is declared behind it: it is the same function there. In the PTX of its
// probe every load, store and call is the snippet's own but for the marked stores of its results.
#include <cstddef>

#include "codegen/base/text.h"
#include "codegen/snippets.h"
#include "codegen/source.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

// A compiler that is told of fewer would know of threadIdx what is not so in a kernel.
constexpr int kMostThreads = 1024;

// The assertion of an adapter that failed, if nothing failed before it: what a snippet should have
// been. Behind another error it says only that a function was not understood.
std::string failed_assertion(const std::string& log) {
  const std::string_view mark = "static assertion failed with \"must ";
  const size_t at = log.find(mark), error = log.find("error: ");
  if (at == log.npos || error + std::string_view("error: ").size() < at) return {};
  const size_t from = at + mark.size() - std::string_view("must ").size();
  return log.substr(from, log.find('"', from) - from);
}

}  // namespace

KernelSpec snippet_probe_spec(const KernelSpec& spec, const Snippet& snippet) {
  KernelSpec probe;
  probe.kernel = "snippet_probe";
  probe.source = "attention/mods/snippet_probe.cuh";
  probe.params = "SnippetProbeParams";
  probe.params_bytes = sizeof(SnippetProbeParams);
  probe.last_field = "kv_idx";
  probe.last_field_offset = offsetof(SnippetProbeParams, kv_idx);
  probe.threads = kMostThreads;
  probe.loads = "attention/mods/probe_loads.cuh";
  for (const Constant& constant : spec.constants) {
    if (constant.is_capture()) probe.constants.push_back(constant);
  }
  probe.constants.push_back(Constant::flag("masks", "kMasks", snippet.name == "mask_mod"));
  // All that stands before it in a kernel: it is the last.
  for (const Snippet& each : spec.snippets) {
    probe.snippets.push_back(each);
    if (each.name == snippet.name) break;
  }
  return probe;
}

Status probe_snippet(const KernelSpec& probe, const Compiler& compiler, const std::string& arch) {
  const Snippet& snippet = probe.snippets.back();
  const auto refuse = [&](const std::string& what) {
    return Status(Code::invalid_argument,
                  text("option ", snippet.name, ": ", snippet.file, " ", what));
  };
  std::string log;
  const auto compiled = compiler.compile(emit_unit(probe, arch), arch, probe.snippets, &log);
  if (!compiled.ok()) {
    if (log.empty()) return compiled.status();
    const std::string expected = failed_assertion(log);
    return refuse(expected.empty() ? "does not compile\n" + log : expected);
  }
  const std::string impurity = impurity_of(compiled->ptx);
  if (impurity.empty()) return {};
  return refuse(
      impurity +
      "; a snippet is a pure function of its arguments, captures and __constant__ tables");
}

}  // namespace lathe
