// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_summary and kda_merge on their own, on the simulator, against double: maps of whole sequences
// and long chains of them.
#include "tests/templates/kda_segments_case.h"

using namespace kda_case;

namespace {

// Rows of S^T, [rows, K], go through M, given as M^T, and `end` is added.
ref::Array through(const ref::Array& map, const ref::Array& state, int64_t values, int64_t keys,
                   bool back, const ref::Array& end) {
  ref::Array to(static_cast<size_t>(values * keys));
  for (int64_t v = 0; v < values; ++v) {
    for (int64_t d = 0; d < keys; ++d) {
      double sum = end[v * keys + d];
      for (int64_t i = 0; i < keys; ++i) {
        const int64_t m = back ? d * keys + i : i * keys + d;  // M^T
        sum += state[v * keys + i] * map[m];
      }
      to[v * keys + d] = sum;
    }
  }
  return to;
}

// Elements of a chain, of M = .999 (I - k k^T): a step of beta 1 and a weak decay; E and D of any
// size.
struct Elements {
  ref::Array maps, ends, grads;
  size_t map_size, end_size;

  Elements(size_t count, int values, int keys)
      : map_size(static_cast<size_t>(keys * keys)), end_size(static_cast<size_t>(values * keys)) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (size_t n = 0; n < count; ++n) {
      ref::Array k(static_cast<size_t>(keys));
      double square = 0;
      for (double& x : k) x = normal(random), square += x * x;
      for (size_t i = 0; i < end_size; ++i) {
        ends.push_back(static_cast<float>(normal(random)));
        grads.push_back(static_cast<float>(normal(random)));
      }
      for (int i = 0; i < keys * keys; ++i) {
        const int row = i / keys, column = i % keys;
        maps.push_back(static_cast<float>(.999 * ((row == column) - k[row] * k[column] / square)));
      }
    }
  }
  ref::Array map(size_t n) const { return cut(maps, n, map_size); }
  ref::Array end(size_t n) const { return cut(ends, n, end_size); }
  ref::Array grad(size_t n) const { return cut(grads, n, end_size); }
  static ref::Array cut(const ref::Array& from, size_t n, size_t size) {
    const auto at = from.begin() + static_cast<std::ptrdiff_t>(n * size);
    return ref::Array(at, at + static_cast<std::ptrdiff_t>(size));
  }
};

template <class Params>
void launch(sim::test::Device& device, const Kernel& kernel, uint32_t blocks, const Params& p) {
  device.load(kernel.ptx);
  device.dynamic_shared = static_cast<uint32_t>(kernel.spec.smem_bytes);
  const auto outcome = device.run("entry", blocks, static_cast<uint32_t>(kernel.spec.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  CHECK(outcome.counters.shared_store.conflicts == 0);
}

// The chains of a sequence of `segments` segments; `ranks`: it began before and goes on behind.
void check_merge(int width, int keys, size_t segments, bool ranks = false) {
  constexpr int kHeads = 2, kValues = 12;
  const Setup s = {LATHE_BF16, LATHE_F32, LATHE_F32, width, 1, ranks ? "ranks" : ""};
  const std::vector<Kernel> kernels =
      compile({lathe::kda_merge_spec(walk_spec(s, true), parts_of(s, true))});
  if (kernels.empty()) return;
  CAPTURE(width);
  const Elements given(segments * kHeads, kValues, keys), carried(kHeads, kValues, keys);
  sim::test::Device device("sm_80");
  KdaMergeParams p = {};
  p.summaries = put(device, LATHE_F32, given.ends);
  p.transitions = put(device, LATHE_F32, given.maps);
  p.grad_ends = put(device, LATHE_F32, given.grads);
  p.carry.states = put(device, LATHE_F32, carried.ends);
  p.carry.grads = put(device, LATHE_F32, carried.grads);
  p.carry.carried = ranks ? 1 : 0, p.carry.open = ranks ? 0 : 1;
  p.sequences = 1, p.value_heads = kHeads, p.tokens = static_cast<int>(64 * segments);
  p.key_dim = keys, p.value_dim = kValues, p.segments = static_cast<int>(segments);
  launch(device, kernels[0], 2u * kHeads * 2u, p);
  const ref::Array merged = take(device, LATHE_F32, p.summaries, given.ends.size());
  const ref::Array grads = take(device, LATHE_F32, p.grad_ends, given.grads.size());
  for (size_t head = 0; head < kHeads; ++head) {
    const auto at = [head](size_t segment) { return segment * kHeads + head; };
    const size_t last = segments - 1;
    ref::Array state = carried.end(head), back = carried.grad(head);
    if (!ranks) state = given.end(at(0)), back = given.grad(at(last));
    for (size_t link = ranks ? 0 : 1; link < last; ++link) {
      const size_t front = at(link), behind = at(last - link);
      state = through(given.map(front), state, kValues, keys, false, given.end(front));
      back = through(given.map(behind), back, kValues, keys, true, given.grad(behind));
      CHECK(rms(Elements::cut(merged, front, given.end_size), state) < 1e-6);
      CHECK(rms(Elements::cut(grads, behind, given.end_size), back) < 1e-6);
    }
    // Nobody reads these, and nobody has written them.
    CHECK(Elements::cut(merged, at(last), given.end_size) == given.end(at(last)));
    CHECK(Elements::cut(grads, at(0), given.end_size) == given.grad(at(0)));
  }
}

// A tree over `count` elements of two sequences of two heads, against the chain in double; in the
// order of the slots forth, and against it back.
void check_compose(int width, int keys, int count, int radix) {
  constexpr int kHeads = 2, kSequences = 2, kValues = 12, kRuns = kHeads * kSequences;
  const Setup s = {LATHE_BF16, LATHE_F32, LATHE_F32, width, 1, "ranks"};
  const std::vector<Kernel> kernels = compile({lathe::kda_compose_spec(walk_spec(s, true))});
  if (kernels.empty()) return;
  CAPTURE(width);
  CAPTURE(count);
  const Elements given(static_cast<size_t>(count * kRuns), kValues, keys);
  sim::test::Device device("sm_80");
  lathe::KdaComposeParams p = {};
  const size_t last = static_cast<size_t>(count - 1) * kRuns;
  const auto side = [&](const ref::Array& ends, long long element_runs, size_t first) {
    lathe::KdaComposeSide out = {};
    out.ends = out.to_ends =
        static_cast<float*>(put(device, LATHE_F32, ends)) + first * given.end_size;
    out.transitions = out.to_transitions =
        static_cast<float*>(put(device, LATHE_F32, given.maps)) + first * given.map_size;
    out.sequence_runs = kHeads, out.element_runs = element_runs;
    out.elements = count, out.maps = 1;
    return out;
  };
  p.forward = side(given.ends, kRuns, 0), p.back = side(given.grads, -kRuns, last);
  p.sequences = kSequences, p.value_heads = kHeads, p.key_dim = keys, p.value_dim = kValues;
  p.radix = radix;
  const lathe::KdaSegmentShape shape = {kSequences, kHeads, 1, keys, kValues};
  for (p.step = 1; p.step < count; p.step *= radix) {
    p.forward_blocks = static_cast<int>(lathe::kda_compose_blocks(shape, count, p.step, radix));
    launch(device, kernels[0], 2u * static_cast<uint32_t>(p.forward_blocks), p);
  }
  const auto result = [&](void* from, size_t size) {
    return take(device, LATHE_F32, from, kRuns * size);
  };
  const ref::Array ends = result(p.forward.to_ends, given.end_size);
  const ref::Array maps = result(p.forward.to_transitions, given.map_size);
  const ref::Array grads = result(p.back.to_ends, given.end_size);
  const ref::Array back_maps = result(p.back.to_transitions, given.map_size);
  for (size_t run = 0; run < kRuns; ++run) {
    const ref::Array none(given.map_size);
    ref::Array end = given.end(run), map = given.map(run), grad = given.grad(last + run);
    for (size_t e = 1; e < static_cast<size_t>(count); ++e) {
      const size_t at = e * kRuns + run, behind = last - e * kRuns + run;
      end = through(given.map(at), end, kValues, keys, false, given.end(at));
      map = through(given.map(at), map, keys, keys, false, none);
      grad = through(given.map(behind), grad, kValues, keys, true, given.grad(behind));
    }
    CHECK(rms(Elements::cut(ends, run, given.end_size), end) < 1e-6);
    CHECK(rms(Elements::cut(maps, run, given.map_size), map) < 1e-6);
    CHECK(rms(Elements::cut(grads, run, given.end_size), grad) < 1e-6);
    CHECK(rms(Elements::cut(back_maps, run, given.map_size), map) < 1e-6);
  }
}

}  // namespace

TEST_CASE("kda_merge: 32 links of weak decay, against double") { check_merge(64, 60, 34); }

TEST_CASE("kda_merge: keys of every width") {
  check_merge(128, 128, 4);
  check_merge(192, 188, 4);
  check_merge(256, 252, 4);
}

TEST_CASE("kda_merge of a rank: a state from before, a gradient from behind") {
  check_merge(64, 60, 5, true);
  check_merge(64, 64, 1, true);
}

TEST_CASE("kda_compose: a tree gives what the chain gives") {
  for (const int count : {2, 4, 5, 7, 11}) check_compose(64, 60, count, 4);
  check_compose(64, 64, 5, 32);
  check_compose(128, 100, 3, 2);
  check_compose(256, 252, 3, 4);
}

TEST_CASE("kda_summary of whole sequences: what they make of any state and any gradient") {
  const Setup s = {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 4, "packed l2norm gate_b"};
  const std::vector<Kernel> kernels =
      compile({lathe::kda_summary_spec(walk_spec(s, true), parts_of(s, true))});
  if (kernels.empty()) return;
  ref::Kda a = make_case(s, 3, {0, 40, 40, 110}, 1, 2, 64, 32);
  add_gradients(s, 3, &a);
  Call call(s, a, kernels, 1, 3);
  call.summary.d_o = put(call.device, s.element, a.d_o);
  call.summary.grad_ends = call.room(call.states(), 4);
  call.summary.do_head_stride = call.in.v_head_stride;
  call.summary.do_token_stride = call.in.v_token_stride;
  call.summary.carried = 3, call.summary.open = 0;
  call.summary.forward_blocks = static_cast<int>(call.heads) * 2;
  call.launch(0, call.heads * 3, call.summary);
  const size_t each = static_cast<size_t>(a.key_dim * a.key_dim);
  const ref::Array maps = take(call.device, LATHE_F32, call.summary.transitions, call.heads * each);
  const ref::Array ends = take(call.device, LATHE_F32, call.summary.summaries, call.states());
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
    const ref::Array behind = through(map, cut(a.initial_state, a.state_size()), a.value_dim,
                                      a.key_dim, false, cut(ends, a.state_size()));
    const ref::Array before = through(map, cut(a.dht, a.state_size()), a.value_dim, a.key_dim, true,
                                      cut(grads, a.state_size()));
    final_state.insert(final_state.end(), behind.begin(), behind.end());
    initial_grads.insert(initial_grads.end(), before.begin(), before.end());
  }
  CHECK(rms(final_state, exact.final_state) < 5e-3);
  CHECK(rms(initial_grads, gradients.dinitial_state) < 8e-3);
}
