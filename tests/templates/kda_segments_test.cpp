// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sequences cut into segments: kda_summary, kda_merge and the walks of forward and backward on the
// simulator, under every checker, against the recurrence and its gradients in double.
#include "tests/ref/kda_backward.h"
#include "tests/templates/kda_case.h"

using namespace kda_case;
using lathe::KdaBackwardScanParams;
using lathe::KdaForwardParams;
using lathe::KdaMergeParams;
using lathe::KdaSummaryParams;

namespace {

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
KernelSpec walk_spec(const Setup& s, bool back) {
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
    describe<KdaForwardParams>(&spec, "KdaForwardParams", "reserved",
                               offsetof(KdaForwardParams, reserved),
                               {{"kFinalState", s.has("final")},
                                {"kChunkStates", s.has("chunks")},
                                {"kOutput", true},
                                {"kSaved", false}});
  }
  return spec;
}

lathe::KdaSummaryParts parts_of(const Setup& s, bool back) {
  return {true, back, s.has("initial"), s.has("final")};
}

struct Kernel {
  KernelSpec spec;
  std::string ptx;
};

std::vector<Kernel> compile(const Setup& s, bool back) {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return {};
  }
  std::vector<Kernel> kernels;
  const KernelSpec walk = walk_spec(s, back);
  const lathe::KdaSummaryParts parts = parts_of(s, back);
  for (const KernelSpec& spec :
       {lathe::kda_summary_spec(walk, parts), lathe::kda_merge_spec(walk, parts), walk}) {
    CAPTURE(spec.text());
    const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    // The walks of a call have their own tests of this.
    if (kernels.size() < 2) CHECK(compiled->report.spill_stores == 0);
    kernels.push_back({spec, compiled->ptx});
  }
  return kernels;
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
    const int64_t rows = in.value_dim + in.key_dim;
    summary.in = in;
    summary.initial_state = put(device, LATHE_F32, a.initial_state);
    summary.summaries = room(static_cast<size_t>(heads * rows * in.key_dim), 4);
    merge.cu_seqlens = in.cu_seqlens, merge.summaries = summary.summaries;
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
    const lathe::KdaSummaryBlocks blocks = lathe::kda_summary_blocks(kernels[0].spec, shape());
    summary.forward_blocks = static_cast<int>(blocks.forward);
    if (blocks.all() > 0) launch(0, static_cast<uint32_t>(blocks.all()), summary);
    const int64_t chains = lathe::kda_merge_blocks(kernels[1].spec, shape());
    if (chains > 0) launch(1, static_cast<uint32_t>(chains), merge);
  }
};

struct Results {
  ref::Array o, final_state, chunk_states;
};

Results forward(const Setup& s, const ref::Kda& a, const std::vector<Kernel>& kernels, int segments,
                uint32_t seed) {
  Call call(s, a, kernels, segments, seed);
  call.summarize();
  KdaForwardParams p = {};
  p.in = call.in, p.initial_state = call.summary.initial_state;
  p.summaries = call.summary.summaries;
  size_t chunks = 0;
  for (int64_t n = 0; n < a.sequences(); ++n) {
    chunks += static_cast<size_t>((a.begin[n + 1] - a.begin[n] + a.chunk - 1) / a.chunk);
  }
  chunks *= static_cast<size_t>(a.value_heads) * a.state_size();
  p.o = call.room(a.v.size(), 4), p.final_state = call.room(call.states(), 4);
  p.chunk_states = call.room(chunks, 4), p.chunk_size = static_cast<int>(a.chunk);
  p.o_head_stride = p.in.v_head_stride, p.o_token_stride = p.in.v_token_stride;
  p.o_batch_stride = p.in.v_batch_stride;
  call.launch(2, call.heads * static_cast<uint32_t>(p.in.value_tiles), p);
  Results r;
  r.o = take(call.device, s.element, p.o, a.v.size());
  if (s.has("final")) r.final_state = take(call.device, LATHE_F32, p.final_state, call.states());
  if (s.has("chunks")) r.chunk_states = take(call.device, LATHE_F32, p.chunk_states, chunks);
  return r;
}

struct Grads {
  ref::Array saved_values, value_grads, dinitial_state;
};

Grads backward(const Setup& s, const ref::Kda& a, const std::vector<Kernel>& kernels, int segments,
               uint32_t seed) {
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
  p.forward_blocks = static_cast<int>(call.heads) * p.in.value_tiles;
  call.launch(2, 2 * static_cast<uint32_t>(p.forward_blocks), p);
  Grads g;
  g.saved_values = take(call.device, s.element, p.saved_values, a.v.size());
  g.value_grads = take(call.device, s.element, p.value_grads, a.v.size());
  if (s.has("initial")) {
    g.dinitial_state = take(call.device, LATHE_F32, p.dinitial_state, call.states());
  }
  return g;
}

// What the walk back leaves, times beta, is dv.
ref::Array dv_of(const ref::Kda& a, const ref::Array& value_grads) {
  ref::Array dv = value_grads;
  for (int64_t row = 0; row < a.rows(); ++row) {
    for (int64_t hv = 0; hv < a.value_heads; ++hv) {
      for (int64_t e = 0; e < a.value_dim; ++e) {
        dv[a.value_at(row, hv, e)] *= ref::kda_beta(a, row, hv);
      }
    }
  }
  return dv;
}

void add_gradients(const Setup& s, uint32_t seed, ref::Kda* a) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  a->d_o.resize(a->v.size());
  for (double& x : a->d_o) x = numbers::rounded(s.element, normal(random));
  if (!s.has("final")) return;
  a->dht.resize(static_cast<size_t>(a->sequences() * a->value_heads) * a->state_size());
  for (double& x : a->dht) x = static_cast<float>(normal(random));
}

struct Case {
  Setup setup;
  std::vector<int64_t> begin;
  int heads, ratio, key_dim, value_dim;
  std::vector<int> segments;
};

// Empty sequences, segments of one token and of none, heads that differ in their decay, columns
// past K and V.
Case case_of(int number) {
  const Setup packed = {
      LATHE_BF16, LATHE_F32, LATHE_F32,
      64,         4,         "packed l2norm gate_a factor bias sigmoid initial final chunks"};
  const Setup fixed = {LATHE_F16, LATHE_F32, LATHE_BF16, 128, 4, "final initial v_first narrow"};
  const Setup plain = {LATHE_BF16, LATHE_BF16, LATHE_F32, 64, 8, "packed"};
  if (number == 0) return {packed, {0, 0, 1, 64, 128, 193, 493, 493}, 1, 3, 56, 72, {1, 2, 3, 8}};
  if (number == 1) return {fixed, {0, 300, 600}, 1, 1, 108, 60, {2, 5}};
  return {plain, {0, 65, 330}, 3, 1, 64, 64, {4}};
}
constexpr int kCases = 3;

}  // namespace

TEST_CASE("kda_forward in segments: the recurrence, at any number of them") {
  uint32_t seed = 1;
  for (int number = 0; number < kCases; ++number) {
    const Case c = case_of(number);
    const Setup& s = c.setup;
    const std::vector<Kernel> kernels = compile(s, false);
    if (kernels.empty()) return;
    const ref::Kda a = make_case(s, seed, c.begin, c.heads, c.ratio, c.key_dim, c.value_dim);
    const ref::KdaForward exact = ref::kda_forward(a);
    for (const int segments : c.segments) {
      CAPTURE(s.flags);
      CAPTURE(segments);
      const Results r = forward(s, a, kernels, segments, seed++);
      CHECK(rms(r.o, exact.o) < 5e-3);
      if (s.has("final")) CHECK(rms(r.final_state, exact.final_state) < 5e-3);
      if (s.has("chunks")) CHECK(rms(r.chunk_states, exact.chunk_states) < 5e-3);
    }
  }
}

TEST_CASE("the walks of kda's backward in segments: its gradients, at any number of them") {
  uint32_t seed = 1;
  for (int number = 0; number < kCases; ++number) {
    const Case c = case_of(number);
    const Setup& s = c.setup;
    const std::vector<Kernel> kernels = compile(s, true);
    if (kernels.empty()) return;
    ref::Kda a = make_case(s, seed, c.begin, c.heads, c.ratio, c.key_dim, c.value_dim);
    add_gradients(s, seed, &a);
    const ref::KdaBackward exact = ref::kda_backward(a);
    const Grads whole = backward(s, a, kernels, 1, seed);
    for (const int segments : c.segments) {
      if (segments == 1) continue;
      CAPTURE(s.flags);
      CAPTURE(segments);
      const Grads g = backward(s, a, kernels, segments, ++seed);
      CHECK(rms(g.saved_values, whole.saved_values) < 5e-3);
      CHECK(rms(dv_of(a, g.value_grads), exact.dv) < 8e-3);
      if (s.has("initial")) CHECK(rms(g.dinitial_state, exact.dinitial_state) < 8e-3);
    }
  }
}

// Rows of S^T, [rows, K], go through a map that has M^T below E^T, [V + K, K].
ref::Array through(const ref::Array& map, const ref::Array& state, int64_t values, int64_t keys,
                   bool back, const ref::Array& end) {
  ref::Array to(static_cast<size_t>(values * keys));
  for (int64_t v = 0; v < values; ++v) {
    for (int64_t d = 0; d < keys; ++d) {
      double sum = end[v * keys + d];
      for (int64_t i = 0; i < keys; ++i) {
        const int64_t m = back ? d * keys + i : i * keys + d;  // M^T
        sum += state[v * keys + i] * map[values * keys + m];
      }
      to[v * keys + d] = sum;
    }
  }
  return to;
}

TEST_CASE("kda_merge: 32 links of weak decay, against double") {
  constexpr int kSegments = 34, kHeads = 2, kKeys = 60, kValues = 12;
  const Setup s = {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 1, ""};
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  const KernelSpec spec = lathe::kda_merge_spec(walk_spec(s, true), parts_of(s, true));
  const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  // M = .999 (I - k k^T), a step of beta 1 without and with the decay; E and D of any size.
  const size_t maps = (kValues + kKeys) * kKeys, states = kValues * kKeys;
  std::vector<ref::Array> map, grad;
  ref::Array all_maps, all_grads;
  for (int n = 0; n < kSegments * kHeads; ++n) {
    ref::Array one(maps), end(states), k(kKeys);
    double square = 0;
    for (double& x : k) x = normal(random), square += x * x;
    for (size_t i = 0; i < states; ++i) {
      one[i] = static_cast<float>(normal(random)), end[i] = static_cast<float>(normal(random));
    }
    for (int i = 0; i < kKeys * kKeys; ++i) {
      const int row = i / kKeys, column = i % kKeys;
      one[states + static_cast<size_t>(i)] =
          static_cast<float>(.999 * ((row == column) - k[row] * k[column] / square));
    }
    all_maps.insert(all_maps.end(), one.begin(), one.end());
    all_grads.insert(all_grads.end(), end.begin(), end.end());
    map.push_back(one), grad.push_back(end);
  }
  sim::test::Device device("sm_80");
  KdaMergeParams p = {};
  p.summaries = put(device, LATHE_F32, all_maps), p.grad_ends = put(device, LATHE_F32, all_grads);
  p.sequences = 1, p.value_heads = kHeads, p.tokens = 64 * kSegments;
  p.key_dim = kKeys, p.value_dim = kValues, p.segments = kSegments;
  device.load(compiled->ptx);
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome = device.run("entry", 2u * kHeads * 2u, 64u, p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  const ref::Array merged = take(device, LATHE_F32, p.summaries, all_maps.size());
  const ref::Array grads = take(device, LATHE_F32, p.grad_ends, all_grads.size());
  for (size_t head = 0; head < kHeads; ++head) {
    const auto part = [&](const ref::Array& from, size_t segment, size_t each) {
      const auto at = from.begin() + static_cast<std::ptrdiff_t>((segment * kHeads + head) * each);
      return ref::Array(at, at + static_cast<std::ptrdiff_t>(states));
    };
    ref::Array state = part(all_maps, 0, maps), back = part(all_grads, kSegments - 1, states);
    for (size_t p_of = 1; p_of + 1 < kSegments; ++p_of) {
      const size_t behind = kSegments - 1 - p_of;
      state = through(map[p_of * kHeads + head], state, kValues, kKeys, false,
                      part(all_maps, p_of, maps));
      back = through(map[behind * kHeads + head], back, kValues, kKeys, true,
                     grad[behind * kHeads + head]);
      CHECK(rms(part(merged, p_of, maps), state) < 1e-6);
      CHECK(rms(part(grads, behind, states), back) < 1e-6);
    }
    // Nobody reads these, and nobody has written them.
    CHECK(part(merged, kSegments - 1, maps) == part(all_maps, kSegments - 1, maps));
    CHECK(part(grads, 0, states) == part(all_grads, 0, states));
  }
}

TEST_CASE("kda_summary of whole sequences: what they make of any state and any gradient") {
  const Setup s = {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 4, "packed l2norm gate_b"};
  const std::vector<Kernel> kernels = compile(s, true);
  if (kernels.empty()) return;
  ref::Kda a = make_case(s, 3, {0, 40, 40, 110}, 1, 2, 64, 32);
  add_gradients(s, 3, &a);
  Call call(s, a, kernels, 1, 3);
  call.summary.d_o = put(call.device, s.element, a.d_o);
  call.summary.grad_ends = call.room(call.states(), 4);
  call.summary.do_head_stride = call.in.v_head_stride;
  call.summary.do_token_stride = call.in.v_token_stride;
  call.summary.all = 1;
  call.summary.forward_blocks = static_cast<int>(call.heads) * 2;
  call.launch(0, call.heads * 3, call.summary);
  const size_t each = static_cast<size_t>((a.value_dim + a.key_dim) * a.key_dim);
  const ref::Array maps = take(call.device, LATHE_F32, call.summary.summaries, call.heads * each);
  const ref::Array grads = take(call.device, LATHE_F32, call.summary.grad_ends, call.states());

  std::mt19937 random(4);
  std::normal_distribution<double> normal;
  a.initial_state.resize(call.states()), a.dht.resize(call.states());
  for (double& x : a.initial_state) x = normal(random);
  for (double& x : a.dht) x = normal(random);
  a.state_v_first = true;
  const ref::KdaForward exact = ref::kda_forward(a);
  const ref::KdaBackward gradients = ref::kda_backward(a);
  ref::Array final_state, initial_grads;
  for (size_t n = 0; n < call.heads; ++n) {
    const auto cut = [n](const ref::Array& from, size_t size) {
      const auto at = from.begin() + static_cast<std::ptrdiff_t>(n * size);
      return ref::Array(at, at + static_cast<std::ptrdiff_t>(size));
    };
    const ref::Array map = cut(maps, each);
    const ref::Array behind =
        through(map, cut(a.initial_state, a.state_size()), a.value_dim, a.key_dim, false, map);
    const ref::Array before = through(map, cut(a.dht, a.state_size()), a.value_dim, a.key_dim, true,
                                      cut(grads, a.state_size()));
    final_state.insert(final_state.end(), behind.begin(), behind.end());
    initial_grads.insert(initial_grads.end(), before.begin(), before.end());
  }
  CHECK(rms(final_state, exact.final_state) < 5e-3);
  CHECK(rms(initial_grads, gradients.dinitial_state) < 8e-3);
}

TEST_CASE("kda in segments: the same bits under every schedule") {
  const Case c = case_of(0);
  const std::vector<Kernel> kernels = compile(c.setup, false);
  if (kernels.empty()) return;
  const ref::Kda a = make_case(c.setup, 7, {0, 200}, 1, 2, 64, 64);
  const Results first = forward(c.setup, a, kernels, 3, 1);
  for (uint32_t seed = 2; seed < 5; ++seed) {
    const Results other = forward(c.setup, a, kernels, 3, seed);
    CHECK(other.o == first.o);
    CHECK(other.final_state == first.final_state);
  }
}
