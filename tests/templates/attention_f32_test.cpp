// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_forward on float32 inputs, on the simulator and under every checker: no error above
// twice that of a program that computes in float32 throughout, however the tensor cores add.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/attention/kernels.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention.h"
#include "tests/numbers.h"
#include "tests/ref/attention.h"
#include "tests/ref/attention_plain.h"

using lathe::AttentionForwardParams;
using lathe::AttentionProblem;
using lathe::AttentionTile;
using lathe::KernelSpec;

namespace {

double as_float(double value) { return numbers::rounded(LATHE_F32, value); }

struct Setup {
  int head_dim, value_dim;
  AttentionTile tile;
  std::string flags;  // of packed, local, softcap, alibi, sinks, pack_gqa
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

AttentionProblem problem_of(const Setup& s) {
  AttentionProblem problem;
  problem.element = lathe::Dtype::f32;
  problem.head_dim = s.head_dim, problem.value_dim = s.value_dim;
  problem.packed = s.has("packed"), problem.local = s.has("local");
  problem.softcap = s.has("softcap"), problem.alibi = s.has("alibi");
  problem.sinks = s.has("sinks"), problem.pack_gqa = s.has("pack_gqa");
  problem.forward = true;
  return problem;
}

// Sequences one after another; padding rows behind the last, of packed input, hold NaN.
ref::Attention draw(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  ref::Attention a;
  a.packed = s.has("packed");
  a.kv_heads = one_of({1, 2}), a.heads = a.kv_heads * one_of({1, 2});
  a.head_dim = s.head_dim, a.value_dim = s.value_dim;
  a.scale = as_float(1 / std::sqrt(static_cast<double>(a.head_dim)));
  if (s.has("softcap")) a.softcap = one_of({2, 30});
  if (s.has("local")) {
    a.window_left = one_of({-1, 0, 20, 64}), a.window_right = one_of({-1, 0, 0, 7});
  }
  a.begin_q = a.begin_k = {0};
  const int rows = one_of({1, 33, 70}), keys = one_of({1, 16, 47, 90});
  for (int n = a.packed ? 3 : 2; n > 0; --n) {
    a.begin_q.push_back(a.begin_q.back() + (a.packed ? one_of({0, 1, 17, 40}) : rows));
    a.begin_k.push_back(a.begin_k.back() + (a.packed ? one_of({0, 1, 30, 65}) : keys));
  }
  const auto fill = [&](int64_t tokens, int64_t columns) {
    ref::Array values(static_cast<size_t>(tokens * columns));
    for (double& value : values) value = as_float(normal(random));
    values.resize(values.size() + (a.packed ? 5 * columns : 0), std::nan(""));
    return values;
  };
  a.q = fill(a.begin_q.back(), a.heads * a.head_dim);
  a.k = fill(a.begin_k.back(), a.kv_heads * a.head_dim);
  a.v = fill(a.begin_k.back(), a.kv_heads * a.value_dim);
  for (int64_t h = 0; h < a.heads; ++h) {
    if (s.has("sinks")) a.sinks.push_back(h == 1 ? -ref::kInfinity : as_float(normal(random)));
    if (s.has("alibi")) a.alibi_slopes.push_back(std::exp2(-1.0 - static_cast<double>(h)));
  }
  return a;
}

struct Run {
  ref::AttentionForward result;
  sim::Counters counters;
};

class Kernel {
 public:
  Kernel(const lathe::Compiler& compiler, const Setup& s)
      : spec_(lathe::attention_forward_spec(problem_of(s), s.tile)) {
    const auto compiled = compiler.compile(lathe::emit_unit(spec_, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    ptx_ = compiled->ptx;
    MESSAGE(spec_.text(), ": ", compiled->report.registers, " registers");
    CHECK(compiled->report.stack_bytes == 0);
    CHECK(compiled->report.spill_stores == 0);
  }
  const KernelSpec& spec() const { return spec_; }
  Run run(const ref::Attention& a, uint32_t seed) const;

 private:
  KernelSpec spec_;
  std::string ptx_;
};

Run Kernel::run(const ref::Attention& a, uint32_t seed) const {
  sim::test::Device device("sm_80");
  device.settings.seed = seed;
  device.settings.tensor_sum = static_cast<sim::TensorSum>(seed % 3);
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed / 3 % 3);
  device.load(ptx_);
  const auto floats = [&](const ref::Array& values) {
    std::vector<float> list(values.begin(), values.end());
    if (list.empty()) list.resize(4);
    return reinterpret_cast<void*>(device.upload(list));
  };
  const auto offsets = [&](const std::vector<int64_t>& begin) {
    return reinterpret_cast<void*>(device.upload(std::vector<int>(begin.begin(), begin.end())));
  };
  const int64_t total_q = a.rows(), sequences = a.sequences();
  const int64_t total_k = static_cast<int64_t>(a.k.size()) / (a.kv_heads * a.head_dim);
  AttentionForwardParams p = {};
  p.q = floats(a.q), p.k = floats(a.k), p.v = floats(a.v);
  p.sinks = floats(a.sinks), p.alibi_slopes = floats(a.alibi_slopes);
  p.cu_seqlens_q = offsets(a.begin_q), p.cu_seqlens_k = offsets(a.begin_k);
  const auto lse_count = static_cast<size_t>(total_q * a.heads);
  const size_t out_count = lse_count * static_cast<size_t>(a.value_dim);
  p.out = reinterpret_cast<void*>(device.buffer(out_count * 4));
  p.lse = reinterpret_cast<void*>(device.buffer(lse_count * 4));
  const int64_t rows = a.packed ? total_q : a.queries(0), keys = a.packed ? total_k : a.keys(0);
  p.q_head_stride = p.k_head_stride = a.head_dim;
  p.v_head_stride = p.out_head_stride = a.value_dim;
  p.q_token_stride = a.heads * a.head_dim, p.k_token_stride = a.kv_heads * a.head_dim;
  p.v_token_stride = a.kv_heads * a.value_dim, p.out_token_stride = a.heads * a.value_dim;
  p.q_batch_stride = rows * p.q_token_stride, p.out_batch_stride = rows * p.out_token_stride;
  p.k_batch_stride = keys * p.k_token_stride, p.v_batch_stride = keys * p.v_token_stride;
  p.sequences = static_cast<int>(sequences);
  p.heads = static_cast<int>(a.heads), p.kv_heads = static_cast<int>(a.kv_heads);
  p.seq_q = static_cast<int>(rows), p.seq_k = static_cast<int>(keys);
  p.head_dim = static_cast<int>(a.head_dim), p.value_dim = static_cast<int>(a.value_dim);
  p.window_left = static_cast<int>(a.window_left),
  p.window_right = static_cast<int>(a.window_right);
  const lathe::AttentionShape shape{sequences, a.heads, a.kv_heads, rows, keys};
  p.tiles = static_cast<int>(lathe::attention_tiles(spec_, shape));
  p.softmax_scale = static_cast<float>(a.scale), p.softcap = static_cast<float>(a.softcap);
  device.dynamic_shared = static_cast<uint32_t>(spec_.smem_bytes);
  const auto outcome = device.run("entry", lathe::attention_forward_grid(spec_, shape).x,
                                  static_cast<uint32_t>(spec_.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  const auto download = [&](const void* from, size_t count) {
    const auto list = device.download<float>(reinterpret_cast<uint64_t>(from), count);
    return ref::Array(list.begin(), list.end());
  };
  return {{download(p.out, out_count), download(p.lse, lse_count)}, outcome.counters};
}

// Smallest and largest widths, every tile, every flag.
const std::vector<Setup> kSetups = {
    {64, 64, {128, 32, 1, 8}, "local"},
    {40, 72, {64, 32, 1, 4}, "packed alibi sinks pack_gqa"},
    {128, 128, {64, 32, 1, 4}, "packed local softcap sinks"},
    {96, 64, {32, 32, 1, 2}, "softcap alibi pack_gqa"},
    {192, 128, {64, 16, 1, 4}, "packed"},
    {8, 256, {32, 16, 1, 2}, "local alibi"},
    {256, 256, {32, 16, 1, 2}, "local sinks"},
};

std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

}  // namespace

TEST_CASE("attention_forward: float32 is not rounded to less, whatever the options") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const Kernel kernel(*nvrtc, s);
    CAPTURE(kernel.spec().text());
    for (int turn = 0; turn < 2; ++turn, ++seed) {
      CAPTURE(seed);
      const ref::Attention a = draw(s, seed);
      const Run r = kernel.run(a, seed);
      CHECK(r.counters.shared_load.conflicts == 0);
      CHECK(r.counters.shared_store.conflicts == 0);
      const ref::AttentionForward exact = ref::attention_forward(a);
      const ref::AttentionForward plain = ref::plain_forward(a, as_float);
      const double ratio = s.has("softcap") ? 3 : 2;
      const double bound = ref::max2x_bound(exact.out, plain.out, ratio, as_float);
      const double error = ref::largest_error(r.result.out, exact.out);
      INFO("error " << error << ", bound " << bound);
      CHECK(bound < 1e-5);
      size_t wrong = 0;
      for (size_t i = 0; i < exact.out.size(); ++i) {
        wrong += !(std::abs(r.result.out[i] - exact.out[i]) <= bound);
      }
      CHECK(wrong == 0);
      for (size_t i = 0; i < exact.lse.size(); ++i) {
        const double found = r.result.lse[i], right = exact.lse[i];
        wrong += !(found == right || std::abs(found - right) <= 1e-6 + 1e-6 * std::abs(right));
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("attention_forward: float32 values of ones give ones, to the bit") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const Setup s{72, 64, {64, 32, 1, 4}, "packed local alibi"};
  const Kernel kernel(*nvrtc, s);
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    ref::Attention a = draw(s, seed);
    for (double& value : a.v) value = std::isnan(value) ? value : 1.0;
    const ref::AttentionForward exact = ref::attention_forward(a);
    const Run r = kernel.run(a, seed);
    size_t wrong = 0;
    for (size_t i = 0; i < exact.out.size(); ++i) {
      wrong += r.result.out[i] != (exact.out[i] == 0 ? 0.0 : 1.0);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("attention_forward: float32 keeps its exponents, and NaN to its rows") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const Setup s{64, 64, {64, 32, 1, 4}, "local"};
  const Kernel kernel(*nvrtc, s);
  ref::Attention a = draw(s, 7);
  a.heads = a.kv_heads = 1;
  a.begin_q = a.begin_k = {0, 70};
  a.causal = true, a.window_left = -1, a.window_right = 0;
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  a.q.resize(70 * 64), a.k.resize(70 * 64), a.v.resize(70 * 64);
  for (size_t i = 0; i < a.q.size(); ++i) {  // far outside f16, and outside what squares hold
    a.q[i] = as_float(normal(random) * 0x1p90), a.k[i] = as_float(normal(random) * 0x1p-90);
    a.v[i] = as_float(normal(random) * 0x1p120);
  }
  const auto row_error = [&](const Run& r, const ref::AttentionForward& exact, size_t row) {
    double worst = 0;
    for (size_t i = row * 64; i < (row + 1) * 64; ++i) {
      const double error = std::abs(r.result.out[i] - exact.out[i]);
      if (!(error <= worst) && !std::isnan(worst)) worst = error;  // nan stays
    }
    return worst;
  };
  const ref::AttentionForward exact = ref::attention_forward(a);
  const Run good = kernel.run(a, 1);
  for (size_t row = 0; row < 70; ++row) CHECK(row_error(good, exact, row) < 4e-6 * 0x1p120);
  // The last key and the query of row 20 are spoilt: rows 20 and 69, and no others, see it.
  a.k[69 * 64 + 3] = std::nan("");
  a.q[20 * 64 + 9] = std::nan("");
  const Run spoilt = kernel.run(a, 2);
  for (size_t row = 0; row < 70; ++row) {
    CAPTURE(row);
    if (row == 20 || row == 69) {
      CHECK(std::isnan(spoilt.result.out[row * 64]));
      CHECK(std::isnan(spoilt.result.lse[row]));
    } else {
      CHECK(row_error(spoilt, exact, row) < 4e-6 * 0x1p120);
    }
  }
}
