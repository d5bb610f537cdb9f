// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls of sparse_flash_attention for tests over ranks, and how their results compare with those of
// one rank: rows bit for bit, for what a list names is the same in the same order; gradients of
// keys and sinks to the order of float32 sums.
#pragma once

#include <doctest/doctest.h>

#include "tests/api/rank_calls.h"
#include "tests/ref/sparse_inputs.h"

namespace apitest {

struct SparseRanksCase {
  sparse_case::Shape shape;
  bool backward = true;
  uint32_t seed = 1;
};

inline lathe_context* context() {
  static const Context made = make_context();
  return made.get();
}

inline std::vector<int64_t> offsets(const std::vector<int>& lengths) {
  std::vector<int64_t> out = {0};
  for (const int length : lengths) out.push_back(out.back() + length);
  return out;
}

class WholeSparse {
 public:
  explicit WholeSparse(const SparseRanksCase& c)
      : case_(c), a_(sparse_case::make(c.shape, LATHE_BF16, c.seed)) {
    const sparse_case::Shape& s = c.shape;
    put("q", false, a_.heads, a_.head_dim, a_.q);
    put("k", true, a_.kv_heads, a_.head_dim, a_.k);
    if (!s.values_in_keys) put("v", true, a_.kv_heads, a_.value_dim, a_.v);
    if (s.rope_dim > 0) {
      put("q_rope", false, a_.heads, a_.rope_dim, a_.q_rope);
      put("k_rope", true, a_.kv_heads, a_.rope_dim, a_.k_rope);
    }
    call.put("indices", LATHE_I32, shape(false, a_.kv_heads, a_.topk),
             {a_.indices.begin(), a_.indices.end()});
    if (s.q_pos) {
      auto own = shape(false, 1, 1);
      own.resize(own.size() - 2);
      call.put("q_pos", LATHE_I32, own, {a_.q_pos.begin(), a_.q_pos.end()});
    }
    if (s.packed) {
      for (const auto& [name, lengths] :
           {std::pair("cu_seqlens_q", s.rows), std::pair("cu_seqlens_k", s.keys)}) {
        const auto cu = offsets(lengths);
        call.put(name, LATHE_I32, {static_cast<int64_t>(cu.size())}, {cu.begin(), cu.end()});
      }
    }
    if (s.sinks) call.put("sinks", LATHE_F32, {a_.heads}, a_.sinks);
    call.op = "sparse_flash_attention";
    call.options = {{"scale", std::to_string(a_.scale)},
                    {"deterministic", "1"},
                    {"sparse_mode", s.causal ? "3" : "0"},
                    {"block_size", std::to_string(s.block)},
                    {"index_space", s.absolute ? "absolute" : "sequence"}};
    want("out", false, a_.heads, a_.value_dim);
    statistics();
    if (c.backward) gradients();
  }

  Ranks ranks(int world, lathe_balance balance) const {
    const sparse_case::Shape& s = case_.shape;
    Ranks out;
    out.world = world, out.balance = balance;
    out.flags = LATHE_REDUCE_PARAMETER_GRADS;
    out.length = s.packed ? offsets(s.rows).back() : s.rows[0];
    out.key_length = s.packed ? offsets(s.keys).back() : s.keys[0];
    if (s.packed) out.cu_seqlens = offsets(s.rows), out.cu_seqlens_k = offsets(s.keys);
    return out;
  }

  AttentionCall call;

 private:
  std::vector<int64_t> shape(bool keys, int64_t heads, int64_t width) const {
    const auto& lengths = keys ? case_.shape.keys : case_.shape.rows;
    if (case_.shape.packed) return {offsets(lengths).back(), heads, width};
    return {static_cast<int64_t>(lengths.size()), lengths[0], heads, width};
  }
  void put(const char* name, bool keys, int64_t heads, int64_t width, const ref::Array& values) {
    call.put(name, LATHE_BF16, shape(keys, heads, width), values);
  }
  void want(const char* name, bool keys, int64_t heads, int64_t width) {
    call.want(name, LATHE_BF16, shape(keys, heads, width));
  }
  void statistics() {
    const auto rows = shape(false, 1, 1);
    const int64_t kv = a_.kv_heads, g = a_.group();
    if (case_.shape.packed) {
      call.want("lse", LATHE_F32, {a_.heads, rows[0]});
      call.want("softmax_max", LATHE_F32, {kv, rows[0], g});
      call.want("softmax_sum", LATHE_F32, {kv, rows[0], g});
    } else {
      call.want("lse", LATHE_F32, {rows[0], a_.heads, rows[1]});
      call.want("softmax_max", LATHE_F32, {rows[0], kv, rows[1], g});
      call.want("softmax_sum", LATHE_F32, {rows[0], kv, rows[1], g});
    }
  }
  void gradients() {
    const sparse_case::Shape& s = case_.shape;
    put("dout", false, a_.heads, a_.value_dim, a_.dout);
    want("dq", false, a_.heads, a_.head_dim);
    want("dk", true, a_.kv_heads, a_.head_dim);
    if (!s.values_in_keys) want("dv", true, a_.kv_heads, a_.value_dim);
    if (s.rope_dim > 0) {
      want("dq_rope", false, a_.heads, a_.rope_dim);
      want("dk_rope", true, a_.kv_heads, a_.rope_dim);
    }
    if (s.sinks) call.want("dsinks", LATHE_F32, {a_.heads});
  }

  const SparseRanksCase case_;
  const ref::SparseAttention a_;
};

// Sums of the same terms in another order, rounded to bf16 where they were.
inline void check_sums(const std::string& name, const Values& found, const Values& expected) {
  REQUIRE(found.size() == expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  const double relative = name == "dsinks" ? 1e-5 : 1.0 / 128;
  for (size_t i = 0; i < found.size(); ++i) {
    const double allowed = relative * std::abs(expected[i]) + 1e-5 * largest;
    if (std::abs(found[i] - expected[i]) <= allowed) continue;
    FAIL_CHECK(name << "[" << i << "] is " << found[i] << ", of one rank " << expected[i]);
    return;
  }
}

inline void check_equal(const RanksAnswer& many, const AttentionAnswer& one) {
  REQUIRE(many.outputs.size() == one.outputs.size());
  for (const auto& [name, expected] : one.outputs) {
    const Values& found = many.outputs.at(name);
    if (name == "dk" || name == "dv" || name == "dk_rope" || name == "dsinks") {
      check_sums(name, found, expected);
    } else {
      CHECK_MESSAGE(found == expected, name);
    }
  }
}

inline std::string text(const Ranks& ranks) {
  std::string out = "world " + std::to_string(ranks.world) + " balance " +
                    std::to_string(ranks.balance) + " flags " + std::to_string(ranks.flags);
  for (const int64_t bound : ranks.bounds) out += " " + std::to_string(bound);
  return out;
}

inline sparse_case::Shape batch(int count, int rows, int keys) {
  sparse_case::Shape shape;
  shape.rows.assign(static_cast<size_t>(count), rows);
  shape.keys.assign(static_cast<size_t>(count), keys);
  shape.kv_heads = 2, shape.group = 4, shape.topk = 40;
  return shape;
}

inline sparse_case::Shape packed(std::vector<int> rows, std::vector<int> keys) {
  sparse_case::Shape shape = batch(1, 0, 0);
  shape.rows = std::move(rows), shape.keys = std::move(keys), shape.packed = true;
  return shape;
}

}  // namespace apitest
