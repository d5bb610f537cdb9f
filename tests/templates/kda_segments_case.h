// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the tests of KDA in segments share: the specs of a call, its launches on the simulator, and
// what it leaves.
#pragma once

#include <map>

#include "ops/kda/segments.h"
#include "tests/ref/kda_backward.h"
#include "tests/templates/kda_case.h"

namespace kda_case {

using lathe::KdaBackwardScanParams;
using lathe::KdaForwardParams;
using lathe::KdaMergeParams;
using lathe::KdaSummaryParams;

using Flags = std::vector<std::pair<const char*, bool>>;

template <class Params>
void describe(KernelSpec* spec, const char* params, const char* last_field, size_t offset,
              const Flags& flags) {
  spec->params = params;
  spec->params_bytes = sizeof(Params);
  spec->last_field = last_field, spec->last_field_offset = static_cast<int>(offset);
  for (const auto& [member, value] : flags) {
    spec->constants.push_back(Constant::flag(member, member, value));
  }
}

// With `back` the kernels of a backward, else those of a forward.
inline KernelSpec walk_spec(const Setup& s, bool back) {
  KernelSpec spec = scan_spec(s, back ? "kda_backward_scan" : "kda_forward");
  if (back) {
    describe<KdaBackwardScanParams>(&spec, "KdaBackwardScanParams", "reserved",
                                    offsetof(KdaBackwardScanParams, reserved),
                                    {{"kFinalState", false},
                                     {"kChunkStates", false},
                                     {"kOutput", false},
                                     {"kSaved", true},
                                     {"kFinalStateGrad", s.has("final")},
                                     {"kInitialStateGrad", s.has("initial")}});
  } else {
    describe<KdaForwardParams>(&spec, "KdaForwardParams", "chunks",
                               offsetof(KdaForwardParams, chunks),
                               {{"kFinalState", s.has("final")},
                                {"kChunkStates", s.has("chunks")},
                                {"kOutput", true},
                                {"kSaved", false}});
  }
  return spec;
}

inline lathe::KdaSummaryParts parts_of(const Setup& s, bool back) {
  return {true, back, s.has("initial"), s.has("final")};
}

struct Kernel {
  KernelSpec spec;
  std::string ptx;
};

inline std::vector<Kernel> compile(const std::vector<KernelSpec>& specs) {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return {};
  }
  static std::map<std::string, std::string> known;  // by the spec's text: its PTX
  std::vector<Kernel> kernels;
  for (const KernelSpec& spec : specs) {
    std::string& ptx = known[spec.text()];
    if (ptx.empty()) {
      CAPTURE(spec.text());
      const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
      REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
      // Three planes of float32 leave few registers: its walks have tests of their own.
      const bool planes = spec.text().find(" element=f32") != std::string::npos;
      if (!planes) CHECK(compiled->report.spill_stores == 0);
      ptx = compiled->ptx;
    }
    kernels.push_back({spec, ptx});
  }
  return kernels;
}

// What a call in segments launches, one after another. Summaries that can also go back serve a
// forward as well: it launches half of them.
inline std::vector<Kernel> compile(const Setup& s, bool back, bool summaries_back = true) {
  const KernelSpec walk = walk_spec(s, back);
  const lathe::KdaSummaryParts parts = parts_of(s, summaries_back);
  return compile({lathe::kda_summary_spec(walk, parts), lathe::kda_merge_spec(walk, parts), walk});
}

// A device with the inputs of a case, and the launches of a call on it.
struct Call {
  const Setup& s;
  const ref::Kda& a;
  const std::vector<Kernel>& kernels;
  sim::test::Device device{"sm_80"};
  lathe::KdaInputs in;
  uint32_t heads;  // of all sequences and segments
  KdaSummaryParams summary = {};
  KdaMergeParams merge = {};

  Call(const Setup& setup, const ref::Kda& arrays, const std::vector<Kernel>& compiled,
       int segments, uint32_t seed)
      : s(setup), a(arrays), kernels(compiled) {
    device.settings.seed = seed;
    device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
    in = inputs_of(device, s, a);
    in.segments = segments;
    heads = static_cast<uint32_t>(in.sequences * segments * in.value_heads);
    summary.in = in;
    summary.initial_state = put(device, LATHE_F32, a.initial_state);
    summary.summaries = room(static_cast<size_t>(heads) * a.state_size(), 4);
    summary.transitions = room(static_cast<size_t>(heads * in.key_dim * in.key_dim), 4);
    summary.open = in.sequences;
    merge.cu_seqlens = in.cu_seqlens, merge.summaries = summary.summaries;
    merge.transitions = summary.transitions;
    merge.sequences = in.sequences, merge.value_heads = in.value_heads, merge.tokens = in.tokens;
    merge.key_dim = in.key_dim, merge.value_dim = in.value_dim, merge.segments = segments;
  }

  void* room(size_t count, int each) { return at(device.buffer(count * each + 64)); }
  size_t states() const {
    return static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size();
  }

  template <class Params>
  void launch(int kernel, uint32_t blocks, const Params& p) {
    const KernelSpec& spec = kernels[kernel].spec;
    device.load(kernels[kernel].ptx);
    device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
    const auto outcome = device.run("entry", blocks, static_cast<uint32_t>(spec.threads), p);
    INFO(spec.kernel, " ", sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
    CHECK(outcome.counters.shared_load.conflicts == 0);
    CHECK(outcome.counters.shared_store.conflicts == 0);
  }

  lathe::KdaSegmentShape shape() const {
    return {in.sequences, in.value_heads, in.segments, in.key_dim, in.value_dim};
  }
  // Summaries and their chain, if there are segments.
  void summarize() {
    const bool back = summary.d_o != nullptr;
    const lathe::KdaSummaryBlocks blocks = lathe::kda_summary_blocks(kernels[0].spec, shape());
    summary.forward_blocks = static_cast<int>(blocks.forward);
    const int64_t all = back ? blocks.all() : blocks.forward;
    if (all > 0) launch(0, static_cast<uint32_t>(all), summary);
    const int64_t chains = lathe::kda_merge_blocks(kernels[1].spec, shape());
    const bool unused = kernels[1].spec.constant("grads") != 0 && !back;
    if (chains > 0) launch(1, static_cast<uint32_t>(unused ? chains / 2 : chains), merge);
  }
};

struct Results {
  ref::Array o, final_state, chunk_states;
};

inline Results forward(const Setup& s, const ref::Kda& a, const std::vector<Kernel>& kernels,
                       int segments, uint32_t seed) {
  Call call(s, a, kernels, segments, seed);
  if (kernels.size() > 1) call.summarize();
  KdaForwardParams p = {};
  p.in = call.in, p.initial_state = call.summary.initial_state;
  p.summaries = call.summary.summaries;
  size_t chunks = 0;
  for (int64_t n = 0; n < a.sequences(); ++n) {
    chunks += static_cast<size_t>((a.begin[n + 1] - a.begin[n] + a.chunk - 1) / a.chunk);
  }
  p.chunks = static_cast<int>(chunks);
  chunks *= static_cast<size_t>(a.value_heads) * a.state_size();
  p.o = call.room(a.v.size(), 4), p.final_state = call.room(call.states(), 4);
  p.chunk_states = call.room(chunks, 4), p.chunk_size = static_cast<int>(a.chunk);
  p.o_head_stride = p.in.v_head_stride, p.o_token_stride = p.in.v_token_stride;
  p.o_batch_stride = p.in.v_batch_stride;
  call.launch(static_cast<int>(kernels.size()) - 1,
              call.heads * static_cast<uint32_t>(p.in.value_tiles), p);
  Results r;
  r.o = take(call.device, s.element, p.o, a.v.size());
  if (s.has("final")) r.final_state = take(call.device, LATHE_F32, p.final_state, call.states());
  if (s.has("chunks")) r.chunk_states = take(call.device, LATHE_F32, p.chunk_states, chunks);
  return r;
}

// Without the states of the segments nothing is walked but back: a forward has left the rest.
struct Grads {
  ref::Array saved_values, value_grads, dinitial_state;
};

inline Grads backward(const Setup& s, const ref::Kda& a, const std::vector<Kernel>& kernels,
                      int segments, uint32_t seed) {
  Call call(s, a, kernels, segments, seed);
  KdaBackwardScanParams p = {};
  p.in = call.in, p.initial_state = call.summary.initial_state;
  p.d_o = put(call.device, s.element, a.d_o), p.dht = put(call.device, LATHE_F32, a.dht);
  p.summaries = call.summary.summaries;
  p.grad_ends = call.room(static_cast<size_t>(call.heads) * a.state_size(), 4);
  p.do_head_stride = p.in.v_head_stride, p.do_token_stride = p.in.v_token_stride;
  p.do_batch_stride = p.in.v_batch_stride;
  call.summary.d_o = p.d_o, call.summary.dht = p.dht;
  call.summary.grad_ends = call.merge.grad_ends = const_cast<void*>(p.grad_ends);
  call.summary.do_head_stride = p.do_head_stride;
  call.summary.do_token_stride = p.do_token_stride;
  call.summary.do_batch_stride = p.do_batch_stride;
  call.summarize();
  const size_t slots =
      static_cast<size_t>(s.has("packed") ? p.in.tokens / 64 + p.in.sequences
                                          : p.in.sequences * ((p.in.tokens + 63) / 64));
  const size_t states = slots * static_cast<size_t>(a.value_heads) * a.state_size();
  p.dinitial_state = call.room(call.states(), 4);
  p.saved_values = call.room(a.v.size(), 4), p.value_grads = call.room(a.v.size(), 4);
  p.saved_states = call.room(states, 4), p.state_grads = call.room(states, 4);
  const uint32_t blocks = call.heads * static_cast<uint32_t>(p.in.value_tiles);
  const bool again = kernels[0].spec.constant("states") != 0;
  p.forward_blocks = again ? static_cast<int>(blocks) : 0;
  call.launch(2, again ? 2 * blocks : blocks, p);
  Grads g;
  if (again) g.saved_values = take(call.device, s.element, p.saved_values, a.v.size());
  g.value_grads = take(call.device, s.element, p.value_grads, a.v.size());
  if (s.has("initial")) {
    g.dinitial_state = take(call.device, LATHE_F32, p.dinitial_state, call.states());
  }
  return g;
}

inline void add_gradients(const Setup& s, uint32_t seed, ref::Kda* a) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  a->d_o.resize(a->v.size());
  for (double& x : a->d_o) x = numbers::rounded(s.element, normal(random));
  if (!s.has("final")) return;
  a->dht.resize(static_cast<size_t>(a->sequences() * a->value_heads) * a->state_size());
  for (double& x : a->dht) x = static_cast<float>(normal(random));
}

}  // namespace kda_case
