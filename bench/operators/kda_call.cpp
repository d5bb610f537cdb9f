// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/kda_call.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "bench/table.h"
#include "reference/kda_backward.h"
#include "tests/numbers.h"

namespace bench {
namespace {

constexpr int64_t kChecked = 192;  // tokens at a sequence's end

}  // namespace

KdaCall::KdaCall(lathe_context* context, const KdaSize& size) : size_(size), tensors_(context) {
  add_tensors();
  prepare();
}

void KdaCall::add(const char* name, lathe_dtype dtype, std::vector<int64_t> shape, Fill fill) {
  const double unit = 1 / std::sqrt(static_cast<double>(shape.back()));
  tensors_.add(name, dtype, std::move(shape));
  if (fill == Fill::none) return;
  tensors_.draw(name, tensors_.size(), [=](double x) {
    return fill == Fill::normal      ? x
           : fill == Fill::unit_rows ? x * unit
           : fill == Fill::decays    ? -std::exp(x - 2)
                                     : 1 / (1 + std::exp(-x));
  });
}

void KdaCall::add_offsets() {
  std::vector<int32_t> begin;
  for (int64_t n = 0; n <= size_.sequences; ++n) {
    begin.push_back(static_cast<int32_t>(size_.begin(n)));
  }
  tensors_.add("cu_seqlens", LATHE_I32, {size_.sequences + 1});
  tensors_.upload("cu_seqlens", begin);
}

void KdaCall::add_tensors() {
  const KdaSize& s = size_;
  const std::vector<int64_t> keys = {s.batch, s.tokens, s.heads, s.key_dim};
  const std::vector<int64_t> values = {s.batch, s.tokens, s.value_heads(), s.value_dim};
  const std::vector<int64_t> gates = {s.batch, s.tokens, s.value_heads(), s.key_dim};
  const std::vector<int64_t> betas = {s.batch, s.tokens, s.value_heads()};
  const std::vector<int64_t> states = {s.parts(), s.value_heads(), s.key_dim, s.value_dim};
  const Fill rows = s.fused ? Fill::normal : Fill::unit_rows;
  add("q", s.dtype, keys, rows);
  add("k", s.dtype, keys, rows);
  add("v", s.dtype, values, Fill::normal);
  add("g", s.gate, gates, s.fused ? Fill::normal : Fill::decays);
  add("beta", s.dtype, betas, s.fused ? Fill::normal : Fill::steps);
  if (s.fused) {
    add("A_log", LATHE_F32, {s.value_heads()}, Fill::normal);
    add("dt_bias", LATHE_F32, {s.value_heads() * s.key_dim}, Fill::normal);
  }
  if (s.sequences > 0) add_offsets();
  if (s.final_state) add("initial_state", LATHE_F32, states, Fill::normal);
  if (!s.backward) {
    add("o", s.dtype, values, Fill::none);
    if (s.final_state) add("final_state", LATHE_F32, states, Fill::none);
    return;
  }
  add("do", s.dtype, values, Fill::normal);
  add("dq", s.dtype, keys, Fill::none);
  add("dk", s.dtype, keys, Fill::none);
  add("dv", s.dtype, values, Fill::none);
  add("dg", s.gate, gates, Fill::none);
  add("dbeta", s.dtype, betas, Fill::none);
  if (s.fused) {
    add("dA_log", LATHE_F32, tensors_.shape("A_log"), Fill::none);
    add("ddt_bias", LATHE_F32, tensors_.shape("dt_bias"), Fill::none);
  }
  if (s.final_state) {
    add("dht", LATHE_F32, states, Fill::normal);
    add("dinitial_state", LATHE_F32, states, Fill::none);
  }
}

void KdaCall::prepare() {
  apitest::LargeTensors::Counts options;
  if (size_.fused) {
    options = {{"use_qk_l2norm_in_kernel", 1},
               {"use_gate_in_kernel", 1},
               {"use_beta_sigmoid_in_kernel", 1}};
  }
  if (size_.segments != 0) options.emplace_back("segments", size_.segments);
  const auto names = tensors_.names();
  const apitest::Problem problem = tensors_.problem("kda", options, names);
  call_ = apitest::LargeCall(tensors_, problem.get(), names);
}

std::vector<std::string> KdaCall::counted() const {
  return apitest::counted_launches([&] { check(); });
}

void KdaCall::compare(const std::string& name, int64_t part, int64_t value_head, double bound,
                      const std::vector<double>& found, const std::vector<double>& expected) const {
  double error = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (found.at(i) - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  if (std::sqrt(error) <= bound * std::sqrt(size) || std::sqrt(error) < 1e-6) return;
  throw std::runtime_error(size_.text() + ": " + name + " of sequence " + std::to_string(part) +
                           ", value head " + std::to_string(value_head) + " is off by " +
                           number(std::sqrt(error / size), 6) + " of its size, allowed " +
                           number(bound, 4));
}

// A head is a problem of its own. The tokens before those that are checked give the state there;
// gradients of the last tokens ask for no other.
void KdaCall::check_head(int64_t part, int64_t value_head) const {
  const KdaSize& s = size_;
  const int64_t begin = s.begin(part), end = s.begin(part + 1), head = value_head / s.group;
  const int64_t tail = std::max(begin, end - kChecked);
  ref::Kda one;
  one.key_dim = s.key_dim, one.value_dim = s.value_dim;
  one.scale = 1 / std::sqrt(static_cast<double>(s.key_dim));
  one.l2norm = one.gate = one.sigmoid = s.fused;
  const auto load = [&](const char* name, int64_t from, int64_t to, int64_t heads, int64_t own,
                        int64_t width) {
    std::vector<double> out;
    for (int64_t row = from; row < to; ++row) {
      const auto some = tensors_.values(name, (row * heads + own) * width, width);
      out.insert(out.end(), some.begin(), some.end());
    }
    return out;
  };
  const auto fill = [&](int64_t from, int64_t to) {
    one.begin = {0, to - from};
    one.q = load("q", from, to, s.heads, head, s.key_dim);
    one.k = load("k", from, to, s.heads, head, s.key_dim);
    one.v = load("v", from, to, s.value_heads(), value_head, s.value_dim);
    one.g = load("g", from, to, s.value_heads(), value_head, s.key_dim);
    one.beta = load("beta", from, to, s.value_heads(), value_head, 1);
  };
  const int64_t state = part * s.value_heads() + value_head;
  const auto area = s.key_dim * s.value_dim;
  if (s.fused) {
    one.A_log = tensors_.values("A_log", value_head, 1);
    one.dt_bias = tensors_.values("dt_bias", value_head * s.key_dim, s.key_dim);
  }
  if (s.final_state) one.initial_state = tensors_.values("initial_state", state * area, area);
  if (tail > begin) {
    fill(begin, tail);
    one.initial_state = ref::kda_forward(one).final_state;
  }
  fill(tail, end);
  const bool wide = s.dtype == LATHE_F32;
  const auto check = [&](const char* name, int64_t heads, int64_t own, int64_t width, double bound,
                         const std::vector<double>& expected) {
    compare(name, part, value_head, bound, load(name, tail, end, heads, own, width), expected);
  };
  if (!s.backward) {
    const ref::KdaForward expected = ref::kda_forward(one);
    check("o", s.value_heads(), value_head, s.value_dim, wide ? 1.5e-4 : 7.5e-3, expected.o);
    if (s.final_state) {
      compare("final_state", part, value_head, wide ? 1.5e-4 : 7.5e-3,
              tensors_.values("final_state", state * area, area), expected.final_state);
    }
    return;
  }
  one.d_o = load("do", tail, end, s.value_heads(), value_head, s.value_dim);
  if (s.final_state) one.dht = tensors_.values("dht", state * area, area);
  const ref::KdaBackward expected = ref::kda_backward(one);
  // Bounds are half as much again as those of all tokens and heads together.
  const double strict = wide ? 3e-4 : 1.2e-2, loose = wide ? 1.5e-3 : 3e-2;
  check("dv", s.value_heads(), value_head, s.value_dim, strict, expected.dv);
  check("dg", s.value_heads(), value_head, s.key_dim, loose, expected.dg);
  check("dbeta", s.value_heads(), value_head, 1, loose, expected.dbeta);
  if (s.group > 1) return;  // dq and dk are sums over value heads
  check("dq", s.heads, head, s.key_dim, strict, expected.dq);
  check("dk", s.heads, head, s.key_dim, strict, expected.dk);
}

void KdaCall::check(int heads) const {
  run(nullptr);
  tensors_.read_back();
  std::mt19937_64 random(7);
  const auto any = [&](int64_t count) { return static_cast<int64_t>(random() % count); };
  for (int i = 0; i < heads; ++i) {
    // The last as well: that is where an offset would wrap.
    if (i == 0) check_head(size_.parts() - 1, size_.value_heads() - 1);
    if (i > 0) check_head(any(size_.parts()), any(size_.value_heads()));
  }
}

}  // namespace bench
