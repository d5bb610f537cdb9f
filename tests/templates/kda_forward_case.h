// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_forward alone on the simulator: its spec of a configuration, and one launch.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "tests/templates/kda_case.h"

namespace kda_case {

inline KernelSpec forward_spec(const Setup& s) {
  KernelSpec spec = scan_spec(s, "kda_forward");
  spec.params = "KdaForwardParams";
  spec.params_bytes = sizeof(lathe::KdaForwardParams);
  spec.last_field = "chunks";
  spec.last_field_offset = offsetof(lathe::KdaForwardParams, chunks);
  for (const auto& [flag, member] :
       {std::pair("final", "kFinalState"), std::pair("chunks", "kChunkStates")}) {
    spec.constants.push_back(Constant::flag(flag, member, s.has(flag)));
  }
  spec.constants.push_back(Constant::flag("output", "kOutput", true));
  spec.constants.push_back(Constant::flag("saved", "kSaved", false));
  return spec;
}

// The PTX of a spec, compiled once in a run of the tests; null where there is no compiler.
inline const std::string* compiled_ptx(const KernelSpec& spec) {
  static const auto compiler = lathe::Compiler::open();
  static std::map<std::string, std::string> known;
  if (!compiler.ok()) {
    MESSAGE("skipped, no compiler: ", compiler.status().text());
    return nullptr;
  }
  std::string& ptx = known[spec.text()];
  if (ptx.empty()) {
    const auto compiled = (*compiler)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    ptx = compiled->ptx;
  }
  return &ptx;
}

struct ForwardResults {
  ref::Array o, final_state, chunk_states;
  sim::Counters counters;
};

// `rest` rows behind the last sequence are among the inputs of `a` and in o.
inline ForwardResults run_forward(sim::test::Device& device, const Setup& s, const ref::Kda& a,
                                  int rest = 0) {
  lathe::KdaForwardParams p = {};
  p.in = inputs_of(device, s, a);
  p.in.tokens += rest;
  p.initial_state = put(device, LATHE_F32, a.initial_state);
  const size_t states = static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size();
  size_t chunks = 0;
  for (int64_t n = 0; n < a.sequences(); ++n) {
    chunks += static_cast<size_t>((a.begin[n + 1] - a.begin[n] + a.chunk - 1) / a.chunk);
  }
  const size_t chunk_count = chunks * static_cast<size_t>(a.value_heads) * a.state_size();
  p.o = at(device.buffer(a.v.size() * numbers::bytes_of(s.element) + 16));
  p.final_state = at(device.buffer(states * 4 + 16));
  p.chunk_states = at(device.buffer(chunk_count * 4 + 16));
  p.chunk_size = static_cast<int>(a.chunk), p.chunks = static_cast<int>(chunks);
  p.o_head_stride = p.in.v_head_stride, p.o_token_stride = p.in.v_token_stride;
  p.o_batch_stride = p.in.v_batch_stride;

  const KernelSpec spec = forward_spec(s);
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const int blocks = std::max(p.in.sequences, 1) * p.in.value_heads * p.in.value_tiles;
  const auto outcome =
      device.run("entry", static_cast<uint32_t>(blocks), static_cast<uint32_t>(spec.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  CHECK(outcome.counters.shared_store.conflicts == 0);
  ForwardResults r;
  r.counters = outcome.counters;
  r.o = take(device, s.element, p.o, a.v.size());
  if (s.has("final")) r.final_state = take(device, LATHE_F32, p.final_state, states);
  if (s.has("chunks")) r.chunk_states = take(device, LATHE_F32, p.chunk_states, chunk_count);
  return r;
}

// The same on a device of its own; nothing where there is no compiler.
inline std::optional<ForwardResults> forward(const Setup& s, const ref::Kda& a, uint32_t seed = 1,
                                             int rest = 0) {
  const std::string* ptx = compiled_ptx(forward_spec(s));
  if (ptx == nullptr) return std::nullopt;
  sim::test::Device device("sm_80");
  device.settings.seed = seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
  device.load(*ptx);
  return run_forward(device, s, a, rest);
}

// Of section 14 for 16-bit elements; float32 ones come to the rounding of the results.
inline double bound_of(const Setup& s) { return s.element == LATHE_F32 ? 2e-6 : 5e-3; }

}  // namespace kda_case
