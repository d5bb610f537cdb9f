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
    for (int turn = 0; turn < 4; ++turn, ++seed) {
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
