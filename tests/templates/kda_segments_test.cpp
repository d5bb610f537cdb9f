// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sequences cut into segments: kda_summary, kda_merge and the walks of forward and backward on the
// simulator, under every checker, against the recurrence and its gradients in double.
#include "tests/templates/kda_segments_case.h"

using namespace kda_case;

namespace {

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
constexpr int kCases = 3, kBackwardCases = 2;

}  // namespace

TEST_CASE("kda_forward in segments: the recurrence, at any number of them") {
  uint32_t seed = 1;
  for (int number = 0; number < kCases; ++number) {
    const Case c = case_of(number);
    const Setup& s = c.setup;
    const std::vector<Kernel> kernels = compile(s, false, number < kBackwardCases);
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
  for (int number = 0; number < kBackwardCases; ++number) {
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

TEST_CASE("kda's walk back in segments alone: the bits it has beside the walk forward") {
  const Case c = case_of(0);
  const Setup& s = c.setup;
  const KernelSpec walk = walk_spec(s, true);
  const std::vector<Kernel> both = compile(s, true);
  lathe::KdaSummaryParts parts = parts_of(s, true);
  parts.states = false;
  const std::vector<Kernel> back =
      compile({lathe::kda_summary_spec(walk, parts), lathe::kda_merge_spec(walk, parts), walk});
  if (back.empty()) return;
  ref::Kda a = make_case(s, 2, c.begin, c.heads, c.ratio, c.key_dim, c.value_dim);
  add_gradients(s, 2, &a);
  const Grads whole = backward(s, a, both, 4, 1), alone = backward(s, a, back, 4, 2);
  CHECK(alone.value_grads == whole.value_grads);
  CHECK(alone.dinitial_state == whole.dinitial_state);
}

TEST_CASE("kda of float32 in segments: as in one, within the rounding of float32") {
  const Setup s = {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4, "packed l2norm sigmoid initial final"};
  const std::vector<Kernel> ahead = compile(s, false), back = compile(s, true);
  if (ahead.empty()) return;
  ref::Kda a = make_case(s, 5, {0, 65, 265}, 1, 1, 64, 32);
  add_gradients(s, 5, &a);
  const Results whole = forward(s, a, ahead, 1, 1);
  const Grads grads = backward(s, a, back, 1, 1);
  CHECK(rms(whole.o, ref::kda_forward(a).o) < 1e-5);
  for (const int segments : {3, 8}) {
    CAPTURE(segments);
    const auto seed = static_cast<uint32_t>(segments);
    const Results r = forward(s, a, ahead, segments, seed);
    CHECK(rms(r.o, whole.o) < 1e-5);
    CHECK(rms(r.final_state, whole.final_state) < 1e-5);
    if (segments == 8) continue;
    const Grads g = backward(s, a, back, segments, seed);
    CHECK(rms(g.saved_values, grads.saved_values) < 1e-5);
    CHECK(rms(g.value_grads, grads.value_grads) < 1e-5);
    CHECK(rms(g.dinitial_state, grads.dinitial_state) < 1e-5);
  }
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
