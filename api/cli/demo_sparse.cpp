// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention in double: every row weighs the values of the keys on its list, a key
// named twice counts twice; gradients go back through the weights. And attention over a cache in
// pages.
#include <algorithm>
#include <cmath>

#include "api/cli/demo_builder.h"

namespace lathe::cli {
namespace {

// Of one batch row, causal, entries that count tokens of it; names are those of operators.md.
class Sparse {
 public:
  Sparse(const Problem& problem, const TensorMap& inputs)
      : heads_(problem.extents.at("H")),
        kv_heads_(problem.extents.at("HK")),
        width_(problem.extents.at("D")),
        value_width_(problem.extents.at("DV")),
        rows_(problem.extents.at("Sq")),
        keys_(problem.extents.at("Sk")),
        listed_(problem.extents.at("topk")),
        scale_(std::stod(setting(problem, "scale"))),
        q_(values(inputs, "q")),
        k_(values(inputs, "k")),
        v_(values(inputs, "v")),
        indices_(values(inputs, "indices")),
        dout_(values(inputs, "dout")) {
    out_["out"].resize(rows_ * heads_ * value_width_);
    for (const char* name : {"lse", "softmax_max"}) out_[name].resize(rows_ * heads_, -INFINITY);
    out_["softmax_sum"].resize(rows_ * heads_);
    out_["dq"].resize(q_.size()), out_["dk"].resize(k_.size()), out_["dv"].resize(v_.size());
  }

  Expected compute() {
    for (int64_t h = 0; h < heads_; ++h) {
      for (int64_t i = 0; i < rows_; ++i) row(h, i);
    }
    return std::move(out_);
  }

 private:
  std::vector<int64_t> keys_of(int64_t head, int64_t i) const {
    std::vector<int64_t> list;
    for (int64_t e = 0; e < listed_; ++e) {
      const auto j = static_cast<int64_t>(indices_[(i * kv_heads_ + head) * listed_ + e]);
      if (j >= 0 && j < keys_ && j <= keys_ - rows_ + i) list.push_back(j);
    }
    return list;
  }

  void row(int64_t h, int64_t i) {
    const int64_t head = h / (heads_ / kv_heads_), query = i * heads_ + h;
    const std::vector<int64_t> list = keys_of(head, i);
    Values score;
    for (const int64_t j : list) {
      score.push_back(scale_ * dot(q_, query, k_, j * kv_heads_ + head, width_));
    }
    if (list.empty()) return;
    const double most = *std::max_element(score.begin(), score.end());
    double sum = 0;
    for (const double x : score) sum += std::exp(x - most);
    const int64_t group = heads_ / kv_heads_;
    const int64_t statistic = (head * rows_ + i) * group + h % group;
    out_["softmax_max"][statistic] = most, out_["softmax_sum"][statistic] = sum;
    out_["lse"][h * rows_ + i] = most + std::log(sum);
    for (size_t n = 0; n < list.size(); ++n) {
      add(out_["out"], query, std::exp(score[n] - most) / sum, v_, list[n] * kv_heads_ + head,
          value_width_);
    }
    const double delta = dot(dout_, query, out_["out"], query, value_width_);
    for (size_t n = 0; n < list.size(); ++n) {
      const int64_t at = list[n] * kv_heads_ + head;
      const double weight = std::exp(score[n] - most) / sum;
      const double ds = weight * (dot(dout_, query, v_, at, value_width_) - delta) * scale_;
      add(out_["dv"], at, weight, dout_, query, value_width_);
      add(out_["dk"], at, ds, q_, query, width_);
      add(out_["dq"], query, ds, k_, at, width_);
    }
  }

  // Of rows of `count` elements.
  static double dot(const Values& a, int64_t row_a, const Values& b, int64_t row_b, int64_t count) {
    double sum = 0;
    for (int64_t c = 0; c < count; ++c) sum += a[row_a * count + c] * b[row_b * count + c];
    return sum;
  }
  static void add(Values& to, int64_t row_to, double factor, const Values& from, int64_t row_from,
                  int64_t count) {
    for (int64_t c = 0; c < count; ++c) {
      to[row_to * count + c] += factor * from[row_from * count + c];
    }
  }

  int64_t heads_, kv_heads_, width_, value_width_, rows_, keys_, listed_;
  double scale_;
  Values q_, k_, v_, indices_, dout_;
  Expected out_;
};

constexpr int64_t kPage = 16;

}  // namespace

Expected sparse_reference(const Problem& problem, const TensorMap& inputs) {
  return Sparse(problem, inputs).compute();
}

// The pages of each sequence, laid out one after another: packed attention, whose lse lies head by
// head.
Expected decode_reference(const Problem& problem, const TensorMap& inputs) {
  const std::vector<int64_t> lengths = integers(inputs.at("cache_seqlens")),
                             table = integers(inputs.at("block_table"));
  const auto batch = static_cast<int64_t>(lengths.size());
  const int64_t columns = problem.extents.at("M"), queries = problem.extents.at("Sq");
  TensorMap packed = {{"q", inputs.at("q")}};
  std::vector<int64_t> q_offsets = {0}, k_offsets = {0};
  for (int64_t b = 0; b < batch; ++b) {
    q_offsets.push_back(q_offsets.back() + queries);
    k_offsets.push_back(k_offsets.back() + lengths[b]);
  }
  for (const char* name : {"k", "v"}) {
    const HostTensor& cache = inputs.at(std::string(name) + "_cache");
    const int64_t row = element_count(cache.spec.shape) / (cache.spec.shape[0] * kPage);
    HostTensor& flat = packed[name] = empty_tensor({cache.spec.dtype, {k_offsets.back(), row}});
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < lengths[b]; ++t) {
        const int64_t from = table[b * columns + t / kPage] * kPage + t % kPage;
        for (int64_t c = 0; c < row; ++c) {
          set_element(&flat, (k_offsets[b] + t) * row + c, element(cache, from * row + c));
        }
      }
    }
  }
  for (const auto& [name, offsets] :
       {std::pair{"cu_seqlens_q", &q_offsets}, {"cu_seqlens_k", &k_offsets}}) {
    HostTensor& tensor = packed[name] = empty_tensor({LATHE_I32, {batch + 1}});
    for (int64_t n = 0; n <= batch; ++n)
      set_element(&tensor, n, static_cast<double>((*offsets)[n]));
  }
  Expected out = attention_reference(problem, packed);
  const int64_t heads = problem.extents.at("H");
  const Values by_head = out.at("lse");
  for (int64_t at = 0; at < batch * heads * queries; ++at) {
    const int64_t b = at / (heads * queries), h = at / queries % heads, i = at % queries;
    out["lse"][at] = by_head[h * batch * queries + b * queries + i];
  }
  return out;
}

// Lists of 24 entries of which some name a key twice, none, or one behind the row.
DemoCase sparse_case() {
  const int64_t rows = 40, keys = 60, listed = 24;
  std::vector<int64_t> indices;
  for (int64_t at = 0; at < rows * listed; ++at) {
    indices.push_back(at % 7 == 6 ? -1 : at * 37 % 11 * at % keys);
  }
  const lathe_dtype dtype = LATHE_BF16;
  return Builder("bf16, causal, lists of 24 keys", "sparse_flash_attention", 9)
      .add("q", dtype, {1, rows, 4, 64})
      .add("k", dtype, {1, keys, 1, 64})
      .add("v", dtype, {1, keys, 1, 64})
      .add("dout", dtype, {1, rows, 4, 64})
      .integers("indices", indices, {1, rows, 1, listed})
      .make({{"scale", "0.125"}, {"sparse_mode", "3"}});
}

DemoCase decode_case() {
  const lathe_dtype dtype = LATHE_BF16;
  return Builder("bf16, causal, 2 queries over pages of 16 keys", "flash_attention_decode", 10)
      .add("q", dtype, {2, 2, 4, 64})
      .add("k_cache", dtype, {7, kPage, 2, 64})
      .add("v_cache", dtype, {7, kPage, 2, 64})
      .integers("block_table", {5, 1, 3, 0, 2, 6}, {2, 3})
      .integers("cache_seqlens", {41, 20})
      .make({{"causal", "1"}});
}

}  // namespace lathe::cli
