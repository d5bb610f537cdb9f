// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_forward and sparse_combine on the simulator, under every checker, against plain loops in
// double: random rows and lists for each of a set of configurations that covers every width, tile,
// type and flag.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "ops/sparse/kernels.h"
#include "tests/templates/sparse_case.h"

using lathe::SparseProblem;
using lathe::SparseTile;
using sparse_case::Lists;
using sparse_case::Shape;

namespace {

struct Setup {
  lathe::Dtype element;
  int head_dim, rope_dim, value_dim;
  SparseTile tile;
  int group;
  std::string flags;  // of packed, sinks, wide, values_in_keys
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

SparseProblem problem_of(const Setup& s) {
  SparseProblem problem;
  problem.element = s.element;
  problem.cu_seqlens = s.has("wide") ? lathe::Dtype::i64 : lathe::Dtype::i32;
  problem.head_dim = s.head_dim, problem.rope_dim = s.rope_dim, problem.value_dim = s.value_dim;
  problem.group = s.group, problem.packed = s.has("packed"), problem.sinks = s.has("sinks");
  problem.values_in_keys = s.has("values_in_keys"), problem.forward = true;
  return problem;
}

Shape shape_of(const Setup& s) {
  Shape shape;
  shape.head_dim = s.head_dim, shape.rope_dim = s.rope_dim, shape.value_dim = s.value_dim;
  shape.group = s.group, shape.packed = s.has("packed"), shape.sinks = s.has("sinks");
  shape.values_in_keys = s.has("values_in_keys");
  return shape;
}

struct Found {
  ref::SparseForward results;
  sim::Counters counters;  // of the forward
};

Found run(const lathe::Compiler& nvrtc, const Setup& s, const Shape& shape,
          const ref::SparseAttention& a, int splits, uint32_t seed) {
  const int shared = lathe::sparse_forward_smem(problem_of(s), s.tile);
  sim::test::Device device(shared > 163 * 1024 ? "sm_90a" : "sm_80");
  device.settings.seed = seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
  const auto dtype = static_cast<lathe_dtype>(s.element);
  const SparseProblem problem = problem_of(s);
  const lathe::KernelSpec spec = lathe::sparse_forward_spec(problem, s.tile);
  lathe::SparseForwardParams p = {};
  p.in = sparse_case::upload(device, shape, a, dtype, s.has("wide"));
  const lathe::SparseShape extent = {shape.packed ? 1 : p.in.sequences,
                                     a.heads,
                                     a.kv_heads,
                                     p.in.seq_q,
                                     p.in.seq_k,
                                     a.topk,
                                     a.block};
  p.in.head_tiles = static_cast<int>(lathe::sparse_head_tiles(spec, extent));
  const auto rows = static_cast<size_t>(a.rows() * a.heads);
  const size_t values = rows * static_cast<size_t>(a.value_dim);
  const auto buffer = [&](size_t bytes) { return sparse_case::at(device.buffer(bytes + 16)); };
  p.out = buffer(values * 2);
  p.softmax_max = buffer(rows * 4), p.softmax_sum = buffer(rows * 4), p.lse = buffer(rows * 4);
  sparse_case::dense_strides(shape, false, p.in.heads, shape.value_dim, &p.out_batch_stride,
                             &p.out_token_stride, &p.out_head_stride);
  p.splits = splits;
  if (splits > 1) {
    p.partial_out = buffer(values * 4 * splits);
    p.partial_max = buffer(rows * 4 * splits), p.partial_sum = buffer(rows * 4 * splits);
  }
  Found found;
  found.counters = sparse_case::launch(device, spec, sparse_case::compile(nvrtc, spec),
                                       lathe::sparse_forward_blocks(spec, extent, splits), p);
  if (splits > 1) {
    const lathe::KernelSpec join = lathe::sparse_combine_spec(problem);
    lathe::SparseCombineParams c = {};
    c.partial_out = p.partial_out, c.partial_max = p.partial_max, c.partial_sum = p.partial_sum;
    c.sinks = p.in.sinks, c.out = p.out;
    c.softmax_max = p.softmax_max, c.softmax_sum = p.softmax_sum, c.lse = p.lse;
    c.out_batch_stride = p.out_batch_stride, c.out_token_stride = p.out_token_stride;
    c.out_head_stride = p.out_head_stride;
    c.rows = a.rows(), c.seq_q = p.in.seq_q;
    c.heads = p.in.heads, c.kv_heads = p.in.kv_heads, c.value_dim = p.in.value_dim;
    c.splits = splits;
    sparse_case::launch(device, join, sparse_case::compile(nvrtc, join),
                        lathe::sparse_combine_blocks(join, extent), c);
  }
  found.results.out = sparse_case::decode(device, dtype, p.out, values);
  found.results.softmax_max = sparse_case::decode(device, LATHE_F32, p.softmax_max, rows);
  found.results.softmax_sum = sparse_case::decode(device, LATHE_F32, p.softmax_sum, rows);
  found.results.lse = sparse_case::decode(device, LATHE_F32, p.lse, rows);
  return found;
}

void expect_close(const char* name, const ref::Array& found, const ref::Array& expected,
                  double absolute, double relative) {
  REQUIRE(found.size() == expected.size());
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i];
    const bool good =
        std::isinf(e) ? found[i] == e : std::abs(found[i] - e) <= absolute + relative * std::abs(e);
    if (!good && wrong++ == 0) first = i;
  }
  INFO(name << " " << first << ": " << found.at(first) << " for " << expected.at(first));
  CHECK(wrong == 0);
}

double as_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }
double as_f16(double value) { return numbers::rounded(LATHE_F16, value); }

void expect_near(const Setup& s, const ref::SparseAttention& a, const ref::SparseForward& found) {
  const ref::SparseForward exact = ref::sparse_forward(a);
  const ref::Round round = s.element == lathe::Dtype::bf16 ? as_bf16 : as_f16;
  const double ratio = s.has("sinks") ? 3 : 2;
  const ref::Array plain = ref::sparse_plain_out(a, round);
  const double bound = ref::max2x_bound(exact.out, plain, ratio, round);
  const auto verdict = ref::largest_error(found.out, exact.out);
  CHECK(verdict <= bound);
  CHECK(std::none_of(found.out.begin(), found.out.end(), [](double x) { return std::isnan(x); }));
  CHECK(ref::cosine_difference(found.out, exact.out) < 1e-5);
  expect_close("softmax_max", found.softmax_max, exact.softmax_max, 3e-6, 1e-6);
  expect_close("softmax_sum", found.softmax_sum, exact.softmax_sum, 1e-6, 1e-5);
  expect_close("lse", found.lse, exact.lse, 1e-5, 1e-6);
}

void check_row_zero(const Shape& shape, const ref::SparseForward& found) {
  if (shape.lists == Lists::nothing && !shape.sinks) {
    for (const double x : found.out) REQUIRE(x == 0);
    for (const double x : found.lse) REQUIRE(x == -ref::kInfinity);
  }
}

Shape random_shape(const Setup& s, std::mt19937& random) {
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Shape shape = shape_of(s);
  const int sequences = one_of({1, 2, 4});
  const int rows = one_of({1, 2, 3}), keys = one_of({0, 1, 40, 97, 200});
  for (int n = 0; n < sequences; ++n) {
    shape.rows.push_back(shape.packed ? one_of({0, 1, 3}) : rows);
    shape.keys.push_back(shape.packed ? one_of({0, 1, 31, 97}) : keys);
  }
  if (shape.packed) shape.padding_q = one_of({0, 2}), shape.padding_k = one_of({0, 3});
  shape.kv_heads = s.group > 16 ? 1 : one_of({1, 2});
  shape.topk = one_of({1, 31, 63, 64, 65, 95, 128, 150});
  shape.absolute = random() % 4 == 0;
  shape.block = shape.absolute ? 1 : one_of({1, 1, 2, 16});
  if (shape.block > 1) shape.topk = one_of({1, 5, 9});
  shape.causal = random() % 2 == 0, shape.q_pos = random() % 2 == 0;
  shape.lists = static_cast<Lists>(one_of({0, 0, 0, 0, 1, 2, 3, 4}));
  return shape;
}

constexpr lathe::Dtype kBf16 = lathe::Dtype::bf16, kF16 = lathe::Dtype::f16;
const std::vector<Setup> kSetups = {
    {kBf16, 64, 0, 64, {64, 64, 1, 3}, 64, ""},
    {kF16, 64, 32, 64, {16, 32, 2, 3}, 8, "packed sinks"},
    {kBf16, 128, 64, 128, {16, 64, 4}, 1, "packed wide"},
    {kF16, 72, 8, 120, {48, 32, 2}, 40, "sinks"},
    {kBf16, 256, 64, 256, {64, 32, 1}, 80, "packed sinks"},
    {kBf16, 512, 64, 512, {64, 32, 2}, 64, "values_in_keys"},
    {kF16, 512, 64, 512, {16, 16, 4}, 16, "packed wide sinks"},
    {kBf16, 512, 0, 448, {32, 32, 2}, 24, "packed values_in_keys"},
    {kF16, 576, 0, 512, {32, 32, 4, 3}, 128, "values_in_keys sinks"},
};

}  // namespace

TEST_CASE("sparse_forward: random rows and lists on every configuration, under every check") {
  const auto nvrtc = sparse_case::compiler();
  if (!nvrtc) return;
  std::mt19937 random(1);
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    CAPTURE(lathe::sparse_forward_spec(problem_of(s), s.tile).text());
    for (int turn = 0; turn < 6; ++turn, ++seed) {
      const Shape shape = random_shape(s, random);
      const auto a = sparse_case::make(shape, static_cast<lathe_dtype>(s.element), seed);
      const int splits = turn % 3 == 2 ? 1 + turn : 1;
      CAPTURE(seed);
      CAPTURE(shape.topk);
      CAPTURE(shape.block);
      CAPTURE(static_cast<int>(shape.lists));
      CAPTURE(shape.absolute);
      CAPTURE(shape.causal);
      CAPTURE(splits);
      if (a.rows() == 0) continue;  // nothing to launch
      const Found found = run(*nvrtc, s, shape, a, splits, seed);
      CHECK(found.counters.shared_load.conflicts == 0);
      CHECK(found.counters.shared_store.conflicts == 0);
      expect_near(s, a, found.results);
      check_row_zero(shape, found.results);
    }
  }
}

TEST_CASE("sparse_forward: the same bits whatever the schedule; positions are those it derives") {
  const auto nvrtc = sparse_case::compiler();
  if (!nvrtc) return;
  const Setup s = {kBf16, 128, 64, 128, {32, 32, 2}, 24, "packed sinks"};
  Shape shape = shape_of(s);
  shape.rows = {3, 0, 4}, shape.keys = {40, 7, 90}, shape.padding_q = 1;
  shape.kv_heads = 2, shape.topk = 130, shape.causal = true;
  auto a = sparse_case::make(shape, LATHE_BF16, 5);
  const Found first = run(*nvrtc, s, shape, a, 1, 1);
  const Found parts = run(*nvrtc, s, shape, a, 3, 1);
  expect_near(s, a, parts.results);
  for (uint32_t seed = 2; seed < 8; ++seed) {
    const int splits = seed % 2 == 0 ? 1 : 3;
    const ref::SparseForward& expected = (splits == 1 ? first : parts).results;
    const Found again = run(*nvrtc, s, shape, a, splits, seed);
    CHECK(again.results.out == expected.out);
    CHECK(again.results.lse == expected.lse);
    CHECK(again.results.softmax_sum == expected.softmax_sum);
  }
  shape.q_pos = true;
  for (size_t n = 0; n < shape.rows.size(); ++n) {
    for (int i = 0; i < shape.rows[n]; ++i) a.q_pos.push_back(shape.keys[n] - shape.rows[n] + i);
  }
  a.q_pos.push_back(1000);  // of padding
  CHECK(run(*nvrtc, s, shape, a, 1, 9).results.out == first.results.out);
  a.q_pos.assign(a.q_pos.size(), -1);
  a.sinks.assign(a.sinks.size(), -ref::kInfinity);
  for (const double x : run(*nvrtc, s, shape, a, 1, 9).results.lse) CHECK(x == -ref::kInfinity);
}

TEST_CASE("sparse_forward: values of ones give ones, and more keys than a tile or a list has") {
  const auto nvrtc = sparse_case::compiler();
  if (!nvrtc) return;
  const Setup s = {kBf16, 64, 0, 64, {16, 32, 2}, 2, ""};
  for (const auto& [topk, keys, lists] :
       {std::tuple(2048, 592, Lists::all), {2048, 1521, Lists::mixed}, {700, 700, Lists::all}}) {
    Shape shape = shape_of(s);
    shape.rows = {2}, shape.keys = {keys}, shape.topk = topk, shape.lists = lists;
    auto a = sparse_case::make(shape, LATHE_BF16, 3);
    expect_near(s, a, run(*nvrtc, s, shape, a, 1, 1).results);
    for (double& x : a.v) x = std::isnan(x) ? x : 1.0;
    for (const double x : run(*nvrtc, s, shape, a, 1, 2).results.out) REQUIRE(x == 1);
    for (const double x : run(*nvrtc, s, shape, a, 4, 2).results.out) REQUIRE(x == 1);
  }
}

TEST_CASE("sparse_forward: more rows than a grid has in y") {
  const auto nvrtc = sparse_case::compiler();
  if (!nvrtc) return;
  const Setup s = {kBf16, 64, 0, 64, {16, 32, 2}, 1, ""};
  Shape shape = shape_of(s);
  shape.rows = {66'000}, shape.keys = {5}, shape.topk = 1, shape.lists = Lists::nothing;
  auto a = sparse_case::make(shape, LATHE_BF16, 3);
  for (double& x : a.k) x = 1;
  for (double& x : a.v) x = 2;
  a.indices.back() = 4;
  const Found found = run(*nvrtc, s, shape, a, 1, 1);
  size_t wrong = 0;
  for (size_t i = 0; i < found.results.out.size(); ++i) {
    wrong += found.results.out[i] != (i / 64 == 65'999 ? 2 : 0);
  }
  CHECK(wrong == 0);
}

TEST_CASE("sparse_forward: what it reads and multiplies, at 64 heads of 512 + 64 columns") {
  const auto nvrtc = sparse_case::compiler();
  if (!nvrtc) return;
  Setup s = {kBf16, 512, 64, 512, {}, 64, "values_in_keys"};
  const auto tile = lathe::sparse_choose(problem_of(s), *lathe::facts_of_arch("sm_80"));
  REQUIRE(tile.ok());
  s.tile = *tile;
  Shape shape = shape_of(s);
  constexpr int kTopk = 512;
  shape.rows = {1}, shape.keys = {2048}, shape.topk = kTopk;
  auto a = sparse_case::make(shape, LATHE_BF16, 3);
  for (double& x : a.k) x = std::isnan(x) ? 0.5 : x;
  for (double& x : a.k_rope) x = std::isnan(x) ? 0.5 : x;
  for (double& x : a.v) x = std::isnan(x) ? 0.5 : x;
  for (int i = 0; i < kTopk; ++i) a.indices[i] = i * 1031 % 2048;
  const auto key_bytes = [](const sim::Counters& counters) {
    return 32.0 * static_cast<double>(counters.unique_load_sectors) - 64 * 576 * 2 - kTopk * 4;
  };
  constexpr double kKeyBytes = kTopk * 576 * 2, kOps = 2.0 * 64 * kTopk * (576 + 512);
  const Found single = run(*nvrtc, s, shape, a, 1, 1);
  MESSAGE("key bytes ", key_bytes(single.counters) / kKeyBytes, " times those of the list, ",
          32.0 * single.counters.global_load.sectors / kKeyBytes, " asked for; tensor operations ",
          static_cast<double>(single.counters.tensor_ops) / kOps, " times the useful ones");
  CHECK(key_bytes(single.counters) <= 1.1 * kKeyBytes);
  // Every key is asked for once, and q.
  CHECK(32.0 * single.counters.global_load.sectors <= 1.1 * (kKeyBytes + 64 * 576 * 2));
  CHECK(static_cast<double>(single.counters.tensor_ops) <= 1.15 * kOps);
  CHECK(single.counters.shared_load.conflicts == 0);
  CHECK(single.counters.shared_store.conflicts == 0);
  CHECK(single.counters.local_load.requests == 0);
  CHECK(single.counters.local_store.requests == 0);

  // The same keys as blocks: the list is read once, not for every key.
  shape.topk = 4, shape.block = 128;
  a.topk = 4, a.block = 128, a.indices = {3, 0, 9, 15};
  const Found blocks = run(*nvrtc, s, shape, a, 1, 1);
  CHECK(key_bytes(blocks.counters) <= 1.1 * kKeyBytes - kTopk * 4);
  CHECK(blocks.counters.global_load.requests <= single.counters.global_load.requests);
  CHECK(static_cast<double>(blocks.counters.tensor_ops) <= 1.15 * kOps);
  // Blocks that are not there cost nothing but their entries.
  shape.topk = a.topk = 64, a.indices.assign(64, -1);
  a.indices[40] = 3, a.indices[41] = 16;
  const Found one = run(*nvrtc, s, shape, a, 1, 1);
  CHECK(one.counters.tensor_ops * 4 == blocks.counters.tensor_ops);
}
