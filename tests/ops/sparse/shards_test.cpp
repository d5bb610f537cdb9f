// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover keys sharded over ranks: each has the entries that fall into its part, in
// float32 and without sinks, and lse_merge joins them by rank. And rows of packed sequences that
// ranks have, with their positions, where a sequence begins in one rank and ends in another.
#include "tests/harness/check.h"
#include "tests/sparse_inputs.h"

namespace {

using namespace apitest;

Call call_of(const ref::SparseAttention& a, bool float_out) {
  Call call;
  call.op = "sparse_flash_attention";
  call.put("q", LATHE_BF16, {a.rows(), a.heads, a.head_dim}, a.q);
  call.put("k", LATHE_BF16, {a.keys(), a.kv_heads, a.head_dim}, a.k);
  call.put("v", LATHE_BF16, {a.keys(), a.kv_heads, a.value_dim}, a.v);
  call.put("indices", LATHE_I32, {a.rows(), a.kv_heads, a.topk},
           {a.indices.begin(), a.indices.end()});
  if (!a.q_pos.empty()) {
    call.put("q_pos", LATHE_I32, {a.rows()}, {a.q_pos.begin(), a.q_pos.end()});
  }
  if (!a.sinks.empty()) call.put("sinks", LATHE_F32, {a.heads}, a.sinks);
  call.want("out", float_out ? LATHE_F32 : LATHE_BF16, {a.rows(), a.heads, a.value_dim});
  call.want("lse", LATHE_F32, {a.heads, a.rows()});
  call.options = {{"scale", std::to_string(a.scale)},
                  {"sparse_mode", a.causal ? "3" : "0"},
                  {"num_splits", "1"}};
  return call;
}

ref::SparseAttention draw(int rows, int keys) {
  sparse_case::Shape shape;
  shape.rows = {rows}, shape.keys = {keys}, shape.kv_heads = 2, shape.group = 4;
  shape.topk = 80, shape.causal = shape.sinks = true;
  ref::SparseAttention a = sparse_case::make(shape, LATHE_BF16, 11);
  a.scale = 0.25, a.packed = true;
  for (int i = 0; i < rows; ++i) a.q_pos.push_back(keys - rows + i);
  return a;
}

// Keys begin to end - 1: entries and positions count from there, entries of other parts are -1.
ref::SparseAttention shard(const ref::SparseAttention& a, int64_t begin, int64_t end) {
  ref::SparseAttention part = a;
  const auto cut = [&](ref::Array* x, int64_t width) {
    const auto from = x->begin();
    *x = ref::Array(from + begin * a.kv_heads * width, from + end * a.kv_heads * width);
  };
  cut(&part.k, a.head_dim), cut(&part.v, a.value_dim);
  for (int32_t& entry : part.indices) {
    const int64_t own = entry - begin;
    entry = entry < begin || entry >= end ? -1 : static_cast<int32_t>(own);
  }
  for (int32_t& position : part.q_pos) position -= static_cast<int32_t>(begin);
  part.sinks.clear();
  return part;
}

TEST_CASE("sparse attention: parts over shards of the keys merge into the whole, sinks once") {
  const ref::SparseAttention a = draw(11, 90);
  const auto expected = ref::sparse_forward(a);
  Answer sum;
  // The second rank has keys that nobody names: its result holds nothing, and is not looked at.
  const int64_t cuts[] = {0, 37, 37, 62, 90};
  for (size_t rank = 0; rank + 1 < std::size(cuts); ++rank) {
    const bool empty = cuts[rank] == cuts[rank + 1];
    ref::SparseAttention part = shard(a, cuts[rank], cuts[rank] + (empty ? 5 : 0));
    if (empty) {
      std::fill(part.indices.begin(), part.indices.end(), -1);
      std::fill(part.k.begin(), part.k.end(), NAN);
    } else {
      part = shard(a, cuts[rank], cuts[rank + 1]);
    }
    Answer own = run(call_of(part, true));
    if (rank == 0) {
      sum = own;
      continue;
    }
    if (empty) own.outputs["out"].assign(own.outputs["out"].size(), NAN);
    const bool last = rank + 2 == std::size(cuts);
    Call merge;
    merge.op = "lse_merge";
    const std::vector<int64_t> shape = {a.rows(), a.heads, a.value_dim};
    merge.put("out", LATHE_F32, shape, sum.outputs.at("out"));
    merge.put("lse", LATHE_F32, {a.heads, a.rows()}, sum.outputs.at("lse"));
    merge.put("block_out", LATHE_F32, shape, own.outputs.at("out"));
    merge.put("block_lse", LATHE_F32, {a.heads, a.rows()}, own.outputs.at("lse"));
    merge.tensors["out"].changed = merge.tensors["lse"].changed = true;
    if (last) merge.put("sinks", LATHE_F32, {a.heads}, a.sinks);
    sum = run(merge);
  }
  check_near(sum.outputs.at("lse"), expected.lse, 1e-5);
  check_near(sum.outputs.at("out"), expected.out, 8e-3);  // weights are bf16 in the products
  for (const char* splits : {"1", "2"}) {
    Call call = call_of(a, true);
    call.options["num_splits"] = splits;
    const Answer whole = run(call);
    CHECK(whole.launches.size() == (splits[0] == '1' ? 1 : 2));
    check_near(whole.outputs.at("lse"), expected.lse, 1e-5);
    check_near(whole.outputs.at("out"), expected.out, 8e-3);
  }
}

// Offsets of the rows that a rank has, cut out of those of all rows.
std::vector<double> local_offsets(const std::vector<int>& cu, int first, int rows) {
  std::vector<double> out;
  for (const int offset : cu) out.push_back(std::clamp(offset - first, 0, rows));
  return out;
}

// The vectors of a sharding that once let rows see keys of the future: the last sequence's keys
// must stay whole and its rows have their positions.
TEST_CASE("sparse attention: packed rows cut anywhere keep their keys and their bits") {
  struct Cut {
    std::vector<int> cu;
    int ranks;
  };
  for (const Cut& cut : {Cut{{0, 16}, 4}, Cut{{0, 6, 16}, 2}, Cut{{0, 6, 16}, 4}}) {
    ref::SparseAttention a = draw(16, 16);
    a.sinks.clear(), a.q_pos.clear();
    for (size_t n = 0; n + 1 < cut.cu.size(); ++n) {
      for (int i = cut.cu[n]; i < cut.cu[n + 1]; ++i) a.q_pos.push_back(i - cut.cu[n]);
    }
    for (double* x : {a.k.data(), a.v.data()}) {
      for (int i = 0; i < 16 * 2 * 64; ++i) x[i] = std::isnan(x[i]) ? 0.5 : x[i];
    }
    const std::vector<double> offsets(cut.cu.begin(), cut.cu.end());
    const auto count = static_cast<int64_t>(offsets.size());
    Call whole = call_of(a, false);
    whole.tensors.erase("q_pos");  // derived
    whole.put("cu_seqlens_q", LATHE_I32, {count}, offsets);
    whole.put("cu_seqlens_k", LATHE_I32, {count}, offsets);
    const Values expected = run(whole).outputs.at("out");
    const int rows = 16 / cut.ranks, width = 8 * 64;
    for (int rank = 0; rank < cut.ranks; ++rank) {
      const int first = rank * rows;
      ref::SparseAttention part = a;
      const auto take = [&](auto* x, int64_t row) {
        *x = {x->begin() + first * row, x->begin() + (first + rows) * row};
      };
      take(&part.q, width), take(&part.indices, 2 * a.topk), take(&part.q_pos, 1);
      Call call = call_of(part, false);
      call.put("cu_seqlens_q", LATHE_I32, {count}, local_offsets(cut.cu, first, rows));
      call.put("cu_seqlens_k", LATHE_I32, {count}, offsets);
      const Values found = run(call).outputs.at("out");
      CHECK(found ==
            Values(expected.begin() + first * width, expected.begin() + (first + rows) * width));
    }
  }
}

}  // namespace
