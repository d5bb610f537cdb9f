// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_summary and kda_merge on their own, on the simulator, against double: maps of whole sequences
// and long chains of them.
#include "tests/templates/kda_segments_case.h"

using namespace kda_case;

namespace {

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

// The chains of a sequence of `segments` segments, of M = .999 (I - k k^T): a step of beta 1 and a
// weak decay; E and D of any size.
void check_merge(int width, int keys, size_t segments) {
  constexpr int kHeads = 2, kValues = 12;
  const Setup s = {LATHE_BF16, LATHE_F32, LATHE_F32, width, 1, ""};
  const std::vector<Kernel> kernels =
      compile({lathe::kda_merge_spec(walk_spec(s, true), parts_of(s, true))});
  if (kernels.empty()) return;
  CAPTURE(width);
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  const size_t maps = static_cast<size_t>((kValues + keys) * keys);
  const size_t states = static_cast<size_t>(kValues * keys);
  std::vector<ref::Array> map, grad;
  ref::Array all_maps, all_grads;
  for (int n = 0; n < static_cast<int>(segments) * kHeads; ++n) {
    ref::Array one(maps), end(states), k(static_cast<size_t>(keys));
    double square = 0;
    for (double& x : k) x = normal(random), square += x * x;
    for (size_t i = 0; i < states; ++i) {
      one[i] = static_cast<float>(normal(random)), end[i] = static_cast<float>(normal(random));
    }
    for (int i = 0; i < keys * keys; ++i) {
      const int row = i / keys, column = i % keys;
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
  p.sequences = 1, p.value_heads = kHeads, p.tokens = static_cast<int>(64 * segments);
  p.key_dim = keys, p.value_dim = kValues, p.segments = static_cast<int>(segments);
  device.load(kernels[0].ptx);
  device.dynamic_shared = static_cast<uint32_t>(kernels[0].spec.smem_bytes);
  const auto outcome = device.run("entry", 2u * kHeads * 2u, static_cast<uint32_t>(width), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  CHECK(outcome.counters.shared_store.conflicts == 0);
  const ref::Array merged = take(device, LATHE_F32, p.summaries, all_maps.size());
  const ref::Array grads = take(device, LATHE_F32, p.grad_ends, all_grads.size());
  for (size_t head = 0; head < kHeads; ++head) {
    const auto part = [&](const ref::Array& from, size_t segment, size_t each) {
      const auto at = from.begin() + static_cast<std::ptrdiff_t>((segment * kHeads + head) * each);
      return ref::Array(at, at + static_cast<std::ptrdiff_t>(states));
    };
    ref::Array state = part(all_maps, 0, maps), back = part(all_grads, segments - 1, states);
    for (size_t p_of = 1; p_of + 1 < segments; ++p_of) {
      const size_t behind = segments - 1 - p_of;
      state = through(map[p_of * kHeads + head], state, kValues, keys, false,
                      part(all_maps, p_of, maps));
      back = through(map[behind * kHeads + head], back, kValues, keys, true,
                     grad[behind * kHeads + head]);
      CHECK(rms(part(merged, p_of, maps), state) < 1e-6);
      CHECK(rms(part(grads, behind, states), back) < 1e-6);
    }
    // Nobody reads these, and nobody has written them.
    CHECK(part(merged, segments - 1, maps) == part(all_maps, segments - 1, maps));
    CHECK(part(grads, 0, states) == part(all_grads, 0, states));
  }
}

}  // namespace

TEST_CASE("kda_merge: 32 links of weak decay, against double") { check_merge(64, 60, 34); }

TEST_CASE("kda_merge: keys of every width") {
  check_merge(128, 128, 4);
  check_merge(192, 188, 4);
  check_merge(256, 252, 4);
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
