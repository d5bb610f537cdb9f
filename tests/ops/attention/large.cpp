// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention/large.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "reference/attention.h"
#include "reference/attention_tiles.h"
#include "tests/numbers.h"

namespace apitest {

std::string AttentionSize::text() const {
  std::string out = "B" + std::to_string(batch) + " Sq" + std::to_string(seq_q) + " Sk" +
                    std::to_string(seq_k) + " H" + std::to_string(heads) + " HK" +
                    std::to_string(kv_heads) + " D" + std::to_string(head_dim) + " DV" +
                    std::to_string(value_dim);
  if (sequences > 0) out += " N" + std::to_string(sequences);
  if (causal) out += " causal";
  if (window_left >= 0) out += " window" + std::to_string(window_left);
  if (deterministic) out += " deterministic";
  if (page > 0) out += " page" + std::to_string(page);
  return out;
}

double AttentionSize::flops() const {
  double pairs = 0;
  for (int64_t part = 0; part < parts(); ++part) {
    const auto rows = static_cast<double>(queries(part)), all = static_cast<double>(keys(part));
    // Under a window, every row counts as one in the middle.
    const bool narrow = window_left >= 0 && static_cast<double>(window_left) < all;
    pairs += narrow ? rows * static_cast<double>(window_left + 1)
                    : rows * all * (causal && page == 0 ? 0.5 : 1);
  }
  const double forward = 2 * static_cast<double>((head_dim + value_dim) * heads) * pairs;
  return backward ? 2.5 * forward : forward;
}

double AttentionSize::minimum_bytes() const {
  const auto element = static_cast<double>(numbers::bytes_of(dtype));
  const auto rows = static_cast<double>(batch * seq_q * heads);
  const auto keys = static_cast<double>(batch * seq_k * kv_heads);
  const double once = (rows + keys) * static_cast<double>(head_dim + value_dim) * element;
  return (backward ? 2 : 1) * once + 4 * rows;
}

LargeAttention::LargeAttention(lathe_context* context, const AttentionSize& size)
    : size_(size), tensors_(context) {
  size.page > 0 ? add_pages() : add_tokens();
  prepared_ = prepare({}, false);
  if (!size.backward) return;
  run(nullptr);
  draw("dout", tensors_.shape("out"));
  for (const auto& [gradient, of] :
       {std::pair("dq", "q"), std::pair("dk", "k"), std::pair("dv", "v")}) {
    tensors_.add(gradient, size.dtype, tensors_.shape(of));
  }
  prepared_ = prepare({"dout", "dq", "dk", "dv"}, true);
}

void LargeAttention::add_tokens() {
  const AttentionSize& size = size_;
  const auto shape = [&](int64_t tokens, int64_t heads, int64_t width) {
    std::vector<int64_t> out = {tokens, heads, width};
    if (size.sequences == 0) out.insert(out.begin(), size.batch);
    return out;
  };
  draw("q", shape(size.seq_q, size.heads, size.head_dim));
  draw("k", shape(size.seq_k, size.kv_heads, size.head_dim));
  draw("v", shape(size.seq_k, size.kv_heads, size.value_dim));
  tensors_.add("out", size.dtype, shape(size.seq_q, size.heads, size.value_dim));
  if (size.sequences > 0) {
    tensors_.add("lse", LATHE_F32, {size.heads, size.seq_q});
    offsets("cu_seqlens_q", size.seq_q);
    offsets("cu_seqlens_k", size.seq_k);
  } else {
    tensors_.add("lse", LATHE_F32, {size.batch, size.heads, size.seq_q});
  }
}

void LargeAttention::add_pages() {
  const AttentionSize& size = size_;
  const int64_t each = (size.seq_k + size.page - 1) / size.page, all = size.batch * each;
  for (int64_t i = 0; i < all; ++i) pages_.push_back(static_cast<int32_t>(i));
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(3));
  draw("q", {size.batch, size.seq_q, size.heads, size.head_dim});
  draw("k_cache", {all, size.page, size.kv_heads, size.head_dim});
  draw("v_cache", {all, size.page, size.kv_heads, size.value_dim});
  tensors_.add("out", size.dtype, {size.batch, size.seq_q, size.heads, size.value_dim});
  tensors_.add("lse", LATHE_F32, {size.batch, size.heads, size.seq_q});
  integers("block_table", {size.batch, each}, pages_);
  integers("cache_seqlens", {size.batch},
           std::vector<int32_t>(static_cast<size_t>(size.batch), static_cast<int32_t>(size.seq_k)));
}

LargeCall LargeAttention::prepare(LargeTensors::Names names, bool saved_forward) const {
  names.insert(names.end(), {"q", keys_name(), values_name(), "out", "lse"});
  if (size_.sequences > 0) names.insert(names.end(), {"cu_seqlens_q", "cu_seqlens_k"});
  if (size_.page > 0) names.insert(names.end(), {"block_table", "cache_seqlens"});
  LargeTensors::Counts options;
  if (size_.causal) options.emplace_back("causal", 1);
  if (size_.window_left >= 0) options.emplace_back("window_left", size_.window_left);
  if (saved_forward) options.emplace_back("saved_forward", 1);
  if (size_.deterministic) options.emplace_back("deterministic", 1);
  const char* op = size_.page > 0 ? "flash_attention_decode" : "flash_attention";
  const Problem problem = tensors_.problem(op, options, names);
  return LargeCall(tensors_, problem.get(), names);
}

void LargeAttention::draw(const char* name, std::vector<int64_t> shape) {
  tensors_.add(name, size_.dtype, std::move(shape));
  tensors_.draw(name, tensors_.size());
}

void LargeAttention::integers(const char* name, std::vector<int64_t> shape,
                              const std::vector<int32_t>& values) {
  tensors_.add(name, LATHE_I32, std::move(shape));
  tensors_.upload(name, values);
}

void LargeAttention::offsets(const char* name, int64_t tokens) {
  std::vector<int32_t> begin;
  for (int64_t n = 0; n <= size_.sequences; ++n) {
    begin.push_back(static_cast<int32_t>(n * tokens / size_.sequences));
  }
  integers(name, {size_.sequences + 1}, begin);
}

int64_t LargeAttention::first(int64_t tokens, int64_t part) const {
  return size_.sequences > 0 ? part * tokens / size_.sequences : part * tokens;
}

int64_t LargeAttention::key_token(int64_t part, int64_t key) const {
  if (size_.page == 0) return first(size_.seq_k, part) + key;
  const auto each = static_cast<int64_t>(pages_.size()) / size_.batch;
  const auto entry = static_cast<size_t>(part * each + key / size_.page);
  return pages_[entry] * size_.page + key % size_.page;
}

int64_t LargeAttention::lse_place(const Row& row) const {
  if (size_.sequences > 0) return row.head * size_.seq_q + first(size_.seq_q, row.part) + row.row;
  return (row.part * size_.heads + row.head) * size_.seq_q + row.row;
}

// With the keys up to the last one that it sees, a row is that of the last key: no causal mask is
// left.
ref::Attention LargeAttention::alone(const Row& row) const {
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
  const auto add = [this](const char* name, int64_t token, int64_t width, ref::Array* to) {
    const auto some = tensors_.values(name, token * width, width);
    to->insert(to->end(), some.begin(), some.end());
  };
  const int64_t query = (first(size_.seq_q, row.part) + row.row) * size_.heads + row.head;
  add("q", query, one.head_dim, &one.q);
  if (size_.backward) add("dout", query, one.value_dim, &one.dout);
  for (int64_t j = 0; j < one.begin_k[1]; ++j) {
    const int64_t token = key_token(row.part, j) * size_.kv_heads + kv_head;
    add(keys_name(), token, one.head_dim, &one.k);
    add(values_name(), token, one.value_dim, &one.v);
  }
  return one;
}

void LargeAttention::fail(const char* name, const Row& at, size_t column, double found,
                          double expected) const {
  throw std::runtime_error(size_.text() + ": " + name + " of sequence " + std::to_string(at.part) +
                           ", head " + std::to_string(at.head) + ", token " +
                           std::to_string(at.row) + ", column " + std::to_string(column) + " is " +
                           std::to_string(found) + ", expected " + std::to_string(expected));
}

void LargeAttention::compare(const char* name, const Row& at, const std::vector<double>& found,
                             const std::vector<double>& expected) const {
  double squares = 0;
  for (double value : expected) squares += value * value;
  const double rms = std::sqrt(squares / static_cast<double>(expected.size()));
  // Weights, gradients of scores and results are rounded once each, at random in a sum; in float32
  // the exponential's own error is larger than that.
  const double share = size_.dtype == LATHE_F32 ? 2e-5 : 8 * numbers::half_ulp(size_.dtype);
  for (size_t c = 0; c < found.size(); ++c) {
    const double allowed = share * std::max(rms, std::abs(expected[c]));
    if (!(std::abs(found[c] - expected[c]) <= allowed)) fail(name, at, c, found[c], expected[c]);
  }
}

void LargeAttention::check_row(const Row& row) const {
  const ref::Attention one = alone(row);
  const ref::AttentionForward expected = ref::attention_forward(one);
  const int64_t query = (first(size_.seq_q, row.part) + row.row) * size_.heads + row.head;
  compare("out", row, tensors_.values("out", query * size_.value_dim, size_.value_dim),
          expected.out);
  const double lse = tensors_.values("lse", lse_place(row), 1)[0];
  if (!(std::abs(lse - expected.lse[0]) <= 1e-4)) fail("lse", row, 0, lse, expected.lse[0]);
  if (!size_.backward) return;
  compare("dq", row, tensors_.values("dq", query * size_.head_dim, size_.head_dim),
          ref::attention_backward(one, expected).dq);
}

// dk and dv of one key, from out and lse of the rows that see it, which are checked by themselves.
void LargeAttention::check_key(const Row& key) const {
  const int64_t queries = size_.queries(key.part), ratio = size_.heads / size_.kv_heads;
  const int64_t width = size_.head_dim, value_width = size_.value_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const int64_t token = key_token(key.part, key.row) * size_.kv_heads + key.head;
  const auto k = tensors_.values("k", token * width, width),
             v = tensors_.values("v", token * value_width, value_width);
  const ref::PairMask mask{queries, size_.keys(key.part), size_.causal, size_.window_left};
  ref::Array dk(k.size()), dv(v.size());
  for (int64_t i = 0; i < queries; ++i) {
    if (!mask.kept(i, key.row)) continue;
    for (int64_t head = key.head * ratio; head < (key.head + 1) * ratio; ++head) {
      const int64_t query = (first(size_.seq_q, key.part) + i) * size_.heads + head;
      const auto q = tensors_.values("q", query * width, width),
                 dout = tensors_.values("dout", query * value_width, value_width),
                 out = tensors_.values("out", query * value_width, value_width);
      const double lse = tensors_.values("lse", lse_place({key.part, head, i}), 1)[0];
      const double weight = std::exp(scale * ref::dot(q.data(), k.data(), width) - lse);
      const double ds = weight * scale *
                        (ref::dot(dout.data(), v.data(), value_width) -
                         ref::dot(dout.data(), out.data(), value_width));
      ref::add_scaled(dk.data(), ds, q.data(), width);
      ref::add_scaled(dv.data(), weight, dout.data(), value_width);
    }
  }
  compare("dk", key, tensors_.values("dk", token * width, width), dk);
  compare("dv", key, tensors_.values("dv", token * value_width, value_width), dv);
}

void LargeAttention::check(int rows) const {
  run(nullptr);
  tensors_.read_back();
  std::mt19937_64 random(7);
  const auto any = [&](int64_t count) { return static_cast<int64_t>(random() % count); };
  for (int i = 0; i < rows; ++i) {
    // The last row as well: that is where an offset would wrap.
    Row row{size_.parts() - 1, size_.heads - 1, 0}, key{size_.parts() - 1, size_.kv_heads - 1, 0};
    if (i > 0) row = {any(size_.parts()), any(size_.heads), 0};
    if (i > 0) key = {any(size_.parts()), any(size_.kv_heads), 0};
    row.row = i == 0 ? size_.queries(row.part) - 1 : any(size_.queries(row.part));
    key.row = i == 0 ? size_.keys(key.part) - 1 : any(size_.keys(key.part));
    check_row(row);
    if (size_.backward) check_key(key);
  }
}

}  // namespace apitest
