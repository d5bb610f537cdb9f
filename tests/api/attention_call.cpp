// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/attention_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "tests/numbers.h"
#include "tests/ref/attention.h"

namespace apitest {
namespace {

// A table of normal values of odd period: cheap for gigabytes, different from row to row.
std::vector<unsigned char> draw(lathe_dtype dtype, size_t count, uint64_t seed) {
  const size_t bytes = numbers::bytes_of(dtype);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<unsigned char> table(65521 * bytes), drawn(count * bytes);
  for (size_t i = 0; i < 65521; ++i) numbers::encode(dtype, normal(random), &table[i * bytes]);
  for (size_t at = 0; at < drawn.size(); at += table.size()) {
    std::memcpy(&drawn[at], table.data(), std::min(table.size(), drawn.size() - at));
  }
  return drawn;
}

DLDataType describe(lathe_dtype dtype) {
  const auto code = dtype == LATHE_BF16 ? kDLBfloat : dtype == LATHE_I32 ? kDLInt : kDLFloat;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * numbers::bytes_of(dtype)), 1};
}

}  // namespace

std::string AttentionSize::text() const {
  std::string out = "B" + std::to_string(batch) + " Sq" + std::to_string(seq_q) + " Sk" +
                    std::to_string(seq_k) + " H" + std::to_string(heads) + " HK" +
                    std::to_string(kv_heads) + " D" + std::to_string(head_dim) + " DV" +
                    std::to_string(value_dim);
  if (sequences > 0) out += " N" + std::to_string(sequences);
  if (causal) out += " causal";
  if (window_left >= 0) out += " window" + std::to_string(window_left);
  return out;
}

double AttentionSize::flops() const {
  double pairs = 0;
  for (int64_t part = 0; part < parts(); ++part) {
    const auto rows = static_cast<double>(queries(part)), all = static_cast<double>(keys(part));
    // Of a window, what a row in the middle sees.
    const bool narrow = window_left >= 0 && static_cast<double>(window_left) < all;
    pairs += narrow ? rows * static_cast<double>(window_left + 1) : rows * all * (causal ? 0.5 : 1);
  }
  return 2 * static_cast<double>((head_dim + value_dim) * heads) * pairs;
}

double AttentionSize::minimum_bytes() const {
  const auto element = static_cast<double>(numbers::bytes_of(dtype));
  const auto rows = static_cast<double>(batch * seq_q * heads);
  const auto keys = static_cast<double>(batch * seq_k * kv_heads);
  return (rows + keys) * static_cast<double>(head_dim + value_dim) * element + 4 * rows;
}

AttentionCall::AttentionCall(lathe_context* context, const AttentionSize& size,
                             const std::map<std::string, std::string>& options)
    : context_(context), size_(size) {
  lathe_problem* problem = nullptr;
  API(lathe_problem_create(&problem, "flash_attention"));
  const Problem owner(problem);
  if (size.causal) API(lathe_problem_set_int(problem, "causal", 1));
  if (size.window_left >= 0) API(lathe_problem_set_int(problem, "window_left", size.window_left));
  for (const auto& [name, value] : options) {
    API(lathe_problem_set_string(problem, name.c_str(), value.c_str()));
  }
  const auto shape = [&](int64_t tokens, int64_t heads, int64_t width) {
    std::vector<int64_t> out = {tokens, heads, width};
    if (size.sequences == 0) out.insert(out.begin(), size.batch);
    return out;
  };
  add(problem, "q", size.dtype, shape(size.seq_q, size.heads, size.head_dim), true);
  add(problem, "k", size.dtype, shape(size.seq_k, size.kv_heads, size.head_dim), true);
  add(problem, "v", size.dtype, shape(size.seq_k, size.kv_heads, size.value_dim), true);
  add(problem, "out", size.dtype, shape(size.seq_q, size.heads, size.value_dim), false);
  if (size.sequences > 0) {
    add(problem, "lse", LATHE_F32, {size.heads, size.seq_q}, false);
    offsets(problem, "cu_seqlens_q", size.seq_q);
    offsets(problem, "cu_seqlens_k", size.seq_k);
  } else {
    add(problem, "lse", LATHE_F32, {size.batch, size.heads, size.seq_q}, false);
  }

  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context, problem));
  plan_.reset(plan);
  order_.assign(lathe_plan_slot_count(plan), nullptr);
  for (auto& [name, slot] : slots_) {
    size_t index = 0;
    API(lathe_plan_slot(plan, name.c_str(), &index));
    order_.at(index) = &slot.tensor;
  }
  size_t bytes = 0;
  API(lathe_plan_workspace(plan, order_.data(), nullptr, &bytes));
  workspace_ = std::make_unique<Memory>(context, bytes);
}

void AttentionCall::add(lathe_problem* problem, const char* name, lathe_dtype dtype,
                        std::vector<int64_t> shape, bool input) {
  API(lathe_problem_tensor(problem, name, dtype, static_cast<int>(shape.size()), shape.data()));
  Slot& slot = slots_[name];
  slot.dtype = dtype;
  slot.shape = std::move(shape);
  size_t count = 1;
  for (int64_t extent : slot.shape) count *= static_cast<size_t>(extent);
  slot.memory = std::make_unique<Memory>(context_, count * numbers::bytes_of(dtype));
  if (input) {
    slot.bytes = draw(dtype, count, slots_.size());
    API(lathe_copy_to_device(context_, slot.memory->data(), slot.bytes.data(), slot.bytes.size(),
                             nullptr));
  }
  slot.tensor.data = slot.memory->data();
  slot.tensor.device = {kDLCUDA, 0};
  slot.tensor.ndim = static_cast<int32_t>(slot.shape.size());
  slot.tensor.dtype = describe(dtype);
  slot.tensor.shape = slot.shape.data();
}

void AttentionCall::offsets(lathe_problem* problem, const char* name, int64_t tokens) {
  add(problem, name, LATHE_I32, {size_.sequences + 1}, false);
  std::vector<int32_t> begin;
  for (int64_t n = 0; n <= size_.sequences; ++n) {
    begin.push_back(static_cast<int32_t>(n * tokens / size_.sequences));
  }
  const Memory& memory = *slots_.at(name).memory;
  API(lathe_copy_to_device(context_, memory.data(), begin.data(), memory.bytes(), nullptr));
}

void AttentionCall::run(void* stream) const {
  API(lathe_plan_run(plan_.get(), order_.data(), workspace_->data(), workspace_->bytes(), stream));
}

lathe_estimate AttentionCall::estimate() const {
  lathe_estimate estimate{};
  estimate.size = sizeof estimate;
  API(lathe_plan_estimate(plan_.get(), order_.data(), nullptr, &estimate));
  return estimate;
}

std::vector<double> AttentionCall::values(const Slot& slot, const std::vector<unsigned char>& bytes,
                                          int64_t first, int64_t count) {
  const size_t width = numbers::bytes_of(slot.dtype);
  std::vector<double> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = numbers::decode(slot.dtype, &bytes[(static_cast<size_t>(first) + i) * width]);
  }
  return out;
}

std::vector<unsigned char> AttentionCall::download(const std::string& name) const {
  const Slot& slot = slots_.at(name);
  std::vector<unsigned char> bytes(slot.memory->bytes());
  API(lathe_copy_to_host(context_, bytes.data(), slot.memory->data(), bytes.size(), nullptr));
  return bytes;
}

int64_t AttentionCall::first(int64_t tokens, int64_t part) const {
  return size_.sequences > 0 ? part * tokens / size_.sequences : part * tokens;
}

// With the keys up to the last one that it sees, a row is that of the last key: no causal mask is
// left.
ref::Attention AttentionCall::alone(const Row& row) const {
  const int64_t keys = size_.keys(row.part);
  const int64_t kv_head = row.head / (size_.heads / size_.kv_heads);
  ref::Attention one;
  one.head_dim = size_.head_dim, one.value_dim = size_.value_dim;
  one.scale = 1 / std::sqrt(static_cast<double>(size_.head_dim));
  one.window_left = size_.window_left;
  one.begin_q = {0, 1};
  one.begin_k = {0, keys};
  if (size_.causal) {
    one.begin_k[1] = std::max<int64_t>(0, row.row + 1 + keys - size_.queries(row.part));
  }
  const auto add = [](const Slot& slot, int64_t token, int64_t width, ref::Array* to) {
    const auto some = values(slot, slot.bytes, token * width, width);
    to->insert(to->end(), some.begin(), some.end());
  };
  add(slots_.at("q"), (first(size_.seq_q, row.part) + row.row) * size_.heads + row.head,
      one.head_dim, &one.q);
  for (int64_t j = 0; j < one.begin_k[1]; ++j) {
    const int64_t token = (first(size_.seq_k, row.part) + j) * size_.kv_heads + kv_head;
    add(slots_.at("k"), token, one.head_dim, &one.k);
    add(slots_.at("v"), token, one.value_dim, &one.v);
  }
  return one;
}

void AttentionCall::check(int rows) const {
  run(nullptr);
  const auto out = download("out"), lse = download("lse");
  std::mt19937_64 random(7);
  const auto any = [&](int64_t count) { return static_cast<int64_t>(random() % count); };
  for (int i = 0; i < rows; ++i) {
    // The last row as well: that is where an offset would wrap.
    Row row{size_.parts() - 1, size_.heads - 1, 0};
    if (i > 0) row = {any(size_.parts()), any(size_.heads), 0};
    row.row = i == 0 ? size_.queries(row.part) - 1 : any(size_.queries(row.part));
    const ref::AttentionForward expected = ref::attention_forward(alone(row));
    const auto compare = [&](const char* name, double actual, double wanted, double allowed) {
      if (actual == wanted || std::abs(actual - wanted) <= allowed) return;
      throw std::runtime_error(size_.text() + ": " + name + " of sequence " +
                               std::to_string(row.part) + ", head " + std::to_string(row.head) +
                               ", row " + std::to_string(row.row) + " is " +
                               std::to_string(actual) + ", expected " + std::to_string(wanted));
    };
    const int64_t token = first(size_.seq_q, row.part) + row.row;
    const auto found = values(slots_.at("out"), out,
                              (token * size_.heads + row.head) * size_.value_dim, size_.value_dim);
    for (size_t c = 0; c < found.size(); ++c) {
      // Weights and result are rounded once each; the values are normal, so a sum is of order 1.
      compare("out", found[c], expected.out[c],
              4 * numbers::half_ulp(size_.dtype) * std::max(1.0, std::abs(expected.out[c])));
    }
    const int64_t packed = row.head * size_.seq_q + token;
    const int64_t dense = (row.part * size_.heads + row.head) * size_.seq_q + row.row;
    const int64_t at = size_.sequences > 0 ? packed : dense;
    compare("lse", values(slots_.at("lse"), lse, at, 1)[0], expected.lse[0], 1e-4);
  }
}

}  // namespace apitest
