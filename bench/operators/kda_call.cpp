// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/kda_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "bench/table.h"
#include "reference/kda_backward.h"
#include "tests/numbers.h"

namespace bench {
namespace {

constexpr int64_t kChecked = 192;  // tokens at a sequence's end

DLDataType describe(lathe_dtype dtype) {
  const auto code = dtype == LATHE_BF16 ? kDLBfloat : dtype == LATHE_I32 ? kDLInt : kDLFloat;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * numbers::bytes_of(dtype)), 1};
}

}  // namespace

KdaCall::KdaCall(lathe_context* context, const KdaSize& size, bool shapes_only)
    : context_(context), size_(size), shapes_only_(shapes_only) {
  add_tensors();
  prepare();
}

// A table of odd period repeated: cheap for gigabytes, different from row to row.
void KdaCall::add(const char* name, lathe_dtype dtype, std::vector<int64_t> shape, Fill fill) {
  Slot& slot = slots_[name];
  slot.dtype = dtype;
  slot.shape = std::move(shape);
  size_t count = 1;
  for (int64_t extent : slot.shape) count *= static_cast<size_t>(extent);
  const size_t each = numbers::bytes_of(dtype);
  if (!shapes_only_) {
    slot.memory = std::make_unique<apitest::Memory>(context_, count * each);
    slot.tensor.data = slot.memory->data();
  }
  slot.tensor.device = {kDLCUDA, 0};
  slot.tensor.ndim = static_cast<int32_t>(slot.shape.size());
  slot.tensor.dtype = describe(dtype);
  slot.tensor.shape = slot.shape.data();
  if (fill == Fill::none || shapes_only_) return;
  std::mt19937_64 random(slots_.size());
  std::normal_distribution<double> normal;
  const double unit = 1 / std::sqrt(static_cast<double>(slot.shape.back()));
  std::vector<unsigned char> table(65521 * each);
  for (size_t i = 0; i < 65521; ++i) {
    const double x = normal(random);
    const double value = fill == Fill::normal      ? x
                         : fill == Fill::unit_rows ? x * unit
                         : fill == Fill::decays    ? -std::exp(x - 2)
                                                   : 1 / (1 + std::exp(-x));
    numbers::encode(dtype, value, &table[i * each]);
  }
  slot.bytes.resize(count * each);
  for (size_t at = 0; at < slot.bytes.size(); at += table.size()) {
    std::memcpy(&slot.bytes[at], table.data(), std::min(table.size(), slot.bytes.size() - at));
  }
  API(lathe_copy_to_device(context_, slot.memory->data(), slot.bytes.data(), slot.bytes.size(),
                           nullptr));
}

void KdaCall::add_offsets() {
  std::vector<int32_t> begin;
  for (int64_t n = 0; n <= size_.sequences; ++n) {
    begin.push_back(static_cast<int32_t>(size_.begin(n)));
  }
  add("cu_seqlens", LATHE_I32, {size_.sequences + 1}, Fill::none);
  if (shapes_only_) return;
  const auto& memory = *slots_.at("cu_seqlens").memory;
  API(lathe_copy_to_device(context_, memory.data(), begin.data(), memory.bytes(), nullptr));
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
    add("dA_log", LATHE_F32, slots_.at("A_log").shape, Fill::none);
    add("ddt_bias", LATHE_F32, slots_.at("dt_bias").shape, Fill::none);
  }
  if (s.final_state) {
    add("dht", LATHE_F32, states, Fill::normal);
    add("dinitial_state", LATHE_F32, states, Fill::none);
  }
}

void KdaCall::prepare() {
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, "kda"));
  const apitest::Problem owner(problem);
  const auto set = [&](const char* option, int64_t value) {
    if (value != 0) API(lathe_problem_set_int(problem, option, value));
  };
  set("use_qk_l2norm_in_kernel", size_.fused);
  set("use_gate_in_kernel", size_.fused);
  set("use_beta_sigmoid_in_kernel", size_.fused);
  set("segments", size_.segments);
  for (const auto& [name, slot] : slots_) {
    API(lathe_problem_tensor(problem, name.c_str(), slot.dtype, static_cast<int>(slot.shape.size()),
                             slot.shape.data()));
  }
  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context_, problem));
  plan_.reset(plan);
  order_.assign(lathe_plan_slot_count(plan), nullptr);
  for (const auto& [name, slot] : slots_) {
    size_t index = 0;
    API(lathe_plan_slot(plan, name.c_str(), &index));
    order_.at(index) = &slot.tensor;
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(plan, order_.data(), nullptr, &bytes));
  if (!shapes_only_) workspace_ = std::make_unique<apitest::Memory>(context_, bytes);
}

void KdaCall::run(void* stream) const {
  API(lathe_plan_run(plan(), order_.data(), workspace_->data(), workspace_->bytes(), stream));
}

std::vector<std::string> KdaCall::counted() const {
  apitest::take_report();
  check();
  const apitest::Report report = apitest::take_report();
  if (!report.findings.empty()) throw std::runtime_error(report.findings[0]);
  return report.launches;
}

lathe_estimate KdaCall::estimate() const {
  lathe_estimate estimate{};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan(), order_.data(), nullptr, &estimate));
  return estimate;
}

std::vector<double> KdaCall::values(const std::string& name, int64_t first, int64_t count) const {
  const Slot& slot = slots_.at(name);
  const auto& bytes = slot.bytes.empty() ? results_.at(name) : slot.bytes;
  const size_t width = numbers::bytes_of(slot.dtype);
  std::vector<double> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = numbers::decode(slot.dtype, &bytes[(static_cast<size_t>(first) + i) * width]);
  }
  return out;
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
      const auto some = values(name, (row * heads + own) * width, width);
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
    one.A_log = values("A_log", value_head, 1);
    one.dt_bias = values("dt_bias", value_head * s.key_dim, s.key_dim);
  }
  if (s.final_state) one.initial_state = values("initial_state", state * area, area);
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
              values("final_state", state * area, area), expected.final_state);
    }
    return;
  }
  one.d_o = load("do", tail, end, s.value_heads(), value_head, s.value_dim);
  if (s.final_state) one.dht = values("dht", state * area, area);
  const ref::KdaBackward expected = ref::kda_backward(one);
  // Half as much again as of all tokens and heads together.
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
  for (const auto& [name, slot] : slots_) {
    if (!slot.bytes.empty() || slot.dtype == LATHE_I32) continue;
    auto& bytes = results_[name];
    bytes.resize(slot.memory->bytes());
    API(lathe_copy_to_host(context_, bytes.data(), slot.memory->data(), bytes.size(), nullptr));
  }
  std::mt19937_64 random(7);
  const auto any = [&](int64_t count) { return static_cast<int64_t>(random() % count); };
  for (int i = 0; i < heads; ++i) {
    // The last as well: that is where an offset would wrap.
    if (i == 0) check_head(size_.parts() - 1, size_.value_heads() - 1);
    if (i > 0) check_head(any(size_.parts()), any(size_.value_heads()));
  }
}

}  // namespace bench
