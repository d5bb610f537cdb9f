// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of sparse attention's backward on the simulator, under every checker, against plain
// loops in double: random rows and lists for each of a set of configurations that covers every
// width, tile, type and flag.
#include <algorithm>
#include <cmath>

#include "tests/templates/sparse_backward_case.h"

using namespace sparse_case;

namespace {

constexpr lathe::Dtype kBf16 = lathe::Dtype::bf16, kF16 = lathe::Dtype::f16;

const std::vector<BackwardSetup> kSetups = {
    {kBf16, 64, 0, 64, {64, 64, 1, 8}, ""},
    {kF16, 64, 32, 64, {16, 32, 1, 4}, "packed sinks"},
    {kBf16, 128, 64, 128, {32, 32, 2, 8}, "packed wide ordered"},
    {kF16, 72, 8, 120, {64, 32, 2, 8}, "sinks"},
    {kBf16, 128, 0, 256, {32, 64, 1, 8}, "packed sinks"},
    {kF16, 256, 64, 256, {16, 16, 1, 4}, "packed ordered"},
    {kBf16, 512, 64, 512, {32, 32, 1, 8}, "values_in_keys"},
    {kF16, 512, 64, 512, {16, 16, 1, 4}, "packed wide sinks"},
    {kBf16, 192, 0, 128, {16, 64, 1, 4}, "values_in_keys ordered sinks"},
};

Shape random_shape(const BackwardSetup& s, std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Shape shape = s.shape();
  const int sequences = one_of({1, 2, 3});
  const int rows = one_of({1, 2, 3}), keys = one_of({0, 1, 40, 97});
  for (int n = 0; n < sequences; ++n) {
    shape.rows.push_back(shape.packed ? one_of({0, 1, 3}) : rows);
    shape.keys.push_back(shape.packed ? one_of({0, 1, 31, 97}) : keys);
  }
  if (shape.packed) shape.padding_q = one_of({0, 2}), shape.padding_k = one_of({0, 3});
  shape.kv_heads = one_of({1, 2});
  shape.group = shape.kv_heads == 2 ? one_of({1, 8, 16}) : one_of({1, 16, 24, 40, 64});
  shape.topk = one_of({1, 31, 64, 65, 95});
  shape.absolute = random() % 4 == 0;
  shape.block = shape.absolute ? 1 : one_of({1, 1, 2, 16});
  if (shape.block > 1) shape.topk = one_of({1, 5});
  shape.causal = random() % 2 == 0, shape.q_pos = random() % 2 == 0;
  shape.lists = static_cast<Lists>(one_of({0, 0, 0, 0, 1, 2, 3, 4}));
  return shape;
}

}  // namespace

TEST_CASE("sparse_backward: random rows and lists on every configuration, under every check") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::mt19937 random(1);
  uint32_t seed = 1;
  for (const BackwardSetup& s : kSetups) {
    CAPTURE(lathe::sparse_backward_specs(s.problem(), s.tile).main->text());
    for (int turn = 0; turn < 3; ++turn, ++seed) {
      const Shape shape = random_shape(s, random);
      const auto a = make(shape, s.dtype(), seed);
      CAPTURE(seed);
      CAPTURE(shape.topk);
      CAPTURE(shape.block);
      CAPTURE(shape.group);
      CAPTURE(static_cast<int>(shape.lists));
      CAPTURE(shape.absolute);
      CAPTURE(shape.causal);
      if (a.rows() == 0) continue;  // nothing to launch
      const auto forward = ref::sparse_forward(a);
      BackwardRun how;
      how.seed = seed, how.async = static_cast<sim::AsyncPolicy>(seed % 3);
      how.chunk = turn % 2 == 0 ? 0 : 2;
      const BackwardFound found = run_backward(*nvrtc, s, shape, a, forward, how);
      CHECK(found.main.shared_load.conflicts == 0);
      CHECK(found.main.shared_store.conflicts == 0);
      expect_gradients(s, shape, a, forward, found);
    }
  }
}

namespace {

// Rows that name few keys, many of them more than once, over heads of more than one tile.
Shape crowded(const BackwardSetup& s, int topk) {
  Shape shape = s.shape();
  shape.rows = {5, 0, 4}, shape.keys = {6, 3, 20};
  if (!shape.packed) shape.rows = {4, 4}, shape.keys = {20, 20};
  shape.kv_heads = 2, shape.group = 24, shape.topk = topk;
  return shape;
}

}  // namespace

TEST_CASE("sparse_backward: a deterministic one is the same in every schedule and chunk of rows") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  for (const BackwardSetup& s : {kSetups[2], kSetups[8]}) {
    const Shape shape = crowded(s, 40);
    const auto a = make(shape, s.dtype(), 7);
    const auto forward = ref::sparse_forward(a);
    std::vector<std::vector<char>> first;
    for (uint32_t turn = 0; turn < 10; ++turn) {
      BackwardRun how;
      how.seed = 100 + 7 * turn, how.async = static_cast<sim::AsyncPolicy>(turn % 3);
      how.chunk = turn % 4 == 0 ? 0 : turn % 4;
      const BackwardFound found = run_backward(*nvrtc, s, shape, a, forward, how);
      if (turn == 0) {
        first = found.bits;
        expect_gradients(s, shape, a, forward, found);
      }
      CAPTURE(turn);
      CHECK(found.bits == first);
    }
  }
}

TEST_CASE("sparse_backward: one key, whatever its number in the list, has all of the gradient") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const BackwardSetup& s = kSetups[0];
  for (const int topk : {1, 31, 64, 65}) {
    Shape shape = s.shape();
    shape.rows = {2}, shape.keys = {9}, shape.group = 3, shape.topk = topk;
    shape.lists = Lists::one_key;
    const auto a = make(shape, s.dtype(), static_cast<uint32_t>(topk));
    const auto forward = ref::sparse_forward(a);
    BackwardRun how;
    how.tensor_sum = static_cast<sim::TensorSum>(topk % 3);  // delta is summed as dp is, in each
    const BackwardFound found = run_backward(*nvrtc, s, shape, a, forward, how);
    CAPTURE(topk);
    expect_gradients(s, shape, a, forward, found);
    // Its value is out, so that no score has a gradient: not even what rounding would leave.
    for (const ref::Array* x :
         {&found.numbers.dq, &found.numbers.dk, &found.numbers.dq_rope, &found.numbers.dk_rope}) {
      CHECK(std::all_of(x->begin(), x->end(), [](double value) { return value == 0; }));
    }
  }
}

TEST_CASE("sparse_backward: what is not wanted is not touched, and changes nothing else") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  for (const BackwardSetup& s : {kSetups[1], kSetups[2]}) {
    const Shape shape = crowded(s, 33);
    const auto a = make(shape, s.dtype(), 3);
    const auto forward = ref::sparse_forward(a);
    const auto all = run_backward(*nvrtc, s, shape, a, forward, {}).numbers;
    for (int bits = 1; bits < 7; ++bits) {
      BackwardRun how;
      how.dq = (bits & 1) != 0, how.dk = (bits & 2) != 0, how.dv = (bits & 4) != 0;
      const auto some = run_backward(*nvrtc, s, shape, a, forward, how).numbers;
      CAPTURE(s.flags);
      CAPTURE(bits);
      CHECK(some.dq == (how.dq ? all.dq : ref::Array{}));
      CHECK(some.dq_rope == (how.dq ? all.dq_rope : ref::Array{}));
      // Sums of no order differ in their last bits.
      CHECK(some.dk.size() == (how.dk ? all.dk.size() : 0));
      CHECK(some.dv.size() == (how.dv ? all.dv.size() : 0));
      CHECK(ref::largest_error(some.dk, how.dk ? all.dk : ref::Array{}) < 0.02);
      CHECK(ref::largest_error(some.dv, how.dv ? all.dv : ref::Array{}) < 0.02);
    }
  }
}

TEST_CASE("sparse_backward: products, reads and additions of the usual model") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  struct Case {
    const char* arch;
    lathe::SparseBackwardTile tile;
  };
  for (const Case& c : {Case{"sm_80", {32, 32, 1, 8}}, Case{"sm_90a", {64, 32, 1, 8}}}) {
    const BackwardSetup s = {kBf16, 512, 64, 512, c.tile, "values_in_keys"};
    Shape shape = s.shape();
    shape.rows = {1}, shape.keys = {600}, shape.group = 64, shape.topk = 512;
    shape.lists = Lists::all;
    const auto a = make(shape, s.dtype(), 11);
    const auto forward = ref::sparse_forward(a);
    BackwardRun how;
    how.arch = c.arch;
    const BackwardFound found = run_backward(*nvrtc, s, shape, a, forward, how);
    expect_gradients(s, shape, a, forward, found);
    const sim::Counters& counted = found.main;
    const uint64_t useful = 2ull * 64 * 512 * (3 * 576 + 2 * 512), tiles = 64 / c.tile.heads;
    MESSAGE(c.arch, ": ", double(counted.tensor_ops) / useful, " of the useful products, ",
            counted.global_atomic.sectors, " sectors added to, ",
            counted.shared_load.wavefronts + counted.shared_store.wavefronts,
            " passes of shared memory, ", counted.warp_instructions, " instructions");
    CHECK(counted.tensor_ops <= useful * 1.15);
    CHECK(counted.shared_load.conflicts == 0);
    CHECK(counted.shared_store.conflicts == 0);
    // Each tile of heads adds to each key once, by whole sectors.
    CHECK(counted.global_atomic.bytes == tiles * 512 * 576 * 4);
    CHECK(counted.global_atomic.sectors == counted.global_atomic.bytes / 32);
    // Keys once; q, dout, the list, lse and delta of the row.
    CHECK(counted.unique_load_sectors * 32 <= 1.1 * (512 * 576 * 2) + 64 * (576 + 512) * 2 + 4096);
  }
}
