// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover sparse_flash_attention through lathe.h: dense attention as a list of all keys,
// the positions of rows that a rank has of a whole, parts of lists, caches in pages, and what
// compiles nothing.
#include <numeric>

#include "reference/attention_plain.h"
#include "tests/harness/check.h"
#include "tests/ops/sparse/case.h"

namespace {

using namespace apitest;
using sparse_case::Lists;

SparseCase small() {
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 64, s.rope_dim = 16, s.value_dim = 64, s.kv_heads = 2, s.group = 4;
  s.rows = {24}, s.keys = {70}, s.topk = 70, s.causal = true;
  c.tokens = true, c.deterministic = true;
  return c;
}

// Rows `which` of a problem of one sequence, each with its position in the whole.
ref::SparseAttention rows_of(const ref::SparseAttention& a, const std::vector<int>& which) {
  ref::SparseAttention part = a;
  for (ref::Array ref::SparseAttention::*of :
       {&ref::SparseAttention::q, &ref::SparseAttention::q_rope, &ref::SparseAttention::dout}) {
    const auto row = static_cast<std::ptrdiff_t>((a.*of).size()) / a.rows();
    (part.*of).clear();
    for (const int i : which) {
      const auto from = (a.*of).begin() + i * row;
      (part.*of).insert((part.*of).end(), from, from + row);
    }
  }
  part.indices.clear(), part.q_pos.clear();
  for (const int i : which) {
    const auto from = a.indices.begin() + i * a.kv_heads * a.topk;
    part.indices.insert(part.indices.end(), from, from + a.kv_heads * a.topk);
    part.q_pos.push_back(static_cast<int32_t>(a.keys() - a.rows() + i));
  }
  part.begin_q = {0, static_cast<int64_t>(which.size())};
  return part;
}

std::vector<double> rows_of(const std::vector<double>& values, const std::vector<int>& which,
                            int64_t rows) {
  const auto row = static_cast<std::ptrdiff_t>(values.size()) / rows;
  std::vector<double> part;
  for (const int i : which) {
    part.insert(part.end(), values.begin() + i * row, values.begin() + (i + 1) * row);
  }
  return part;
}

std::vector<int> interval(int from, int to) {
  std::vector<int> out(static_cast<size_t>(to - from));
  std::iota(out.begin(), out.end(), from);
  return out;
}

TEST_CASE("sparse attention: a list of all keys is dense attention, causal or not") {
  for (const bool causal : {false, true}) {
    SparseCase c = small();
    c.shape.lists = Lists::all, c.shape.causal = causal;
    c.shape.rope_dim = 0, c.backward = true;
    const ref::SparseAttention a = make_sparse(c);
    const Answer answer = checked(c, a);
    ref::Attention dense;
    dense.heads = a.heads, dense.kv_heads = a.kv_heads;
    dense.head_dim = a.head_dim, dense.value_dim = a.value_dim, dense.scale = a.scale;
    dense.begin_q = a.begin_q, dense.begin_k = {0, a.keys()}, dense.causal = causal;
    dense.q = a.q, dense.k = a.k, dense.v = a.v, dense.dout = a.dout;
    for (auto* x : {&dense.k, &dense.v}) {
      for (double& value : *x) CHECK_FALSE(std::isnan(value));  // all are listed
    }
    const auto expected = ref::attention_forward(dense);
    const auto gradients = ref::attention_backward(dense, expected);
    CHECK(ref::largest_error(answer.outputs.at("out"), expected.out) < 0.02);
    CHECK(ref::largest_error(answer.outputs.at("dq"), gradients.dq) < 0.02);
    CHECK(ref::largest_error(answer.outputs.at("dk"), gradients.dk) < 0.04);
    CHECK(ref::largest_error(answer.outputs.at("dv"), gradients.dv) < 0.04);
    for (size_t i = 0; i < expected.lse.size(); ++i) {
      CHECK(std::abs(answer.outputs.at("lse")[i] - expected.lse[i]) < 1e-5);
    }
  }
}

// dq alone: gradients of keys are sums over ranks, of float32, within what rounding the parts
// loses.
TEST_CASE("sparse attention: rows that a rank has of a whole give the bits of the whole") {
  SparseCase whole = small();
  whole.backward = true;
  const ref::SparseAttention a = make_sparse(whole);
  const Answer expected = checked(whole, a);
  std::vector<std::vector<int>> ranks = {interval(0, 6), interval(6, 13), interval(13, 24)};
  std::vector<int> head_tail = interval(0, 4), middle = interval(4, 20);
  for (const int i : interval(20, 24)) head_tail.push_back(i);
  ranks.push_back(head_tail), ranks.push_back(middle);
  std::vector<double> dk(expected.outputs.at("dk").size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto& rows = ranks[r];
    SparseCase c = whole;
    c.shape.rows = {static_cast<int>(rows.size())}, c.shape.q_pos = true;
    const Answer part = checked(c, rows_of(a, rows));
    for (const char* name : {"out", "dq", "dq_rope"}) {
      CHECK(part.outputs.at(name) == rows_of(expected.outputs.at(name), rows, 24));
    }
    for (size_t i = 0; r < 3 && i < dk.size(); ++i) dk[i] += part.outputs.at("dk")[i];
    for (int64_t h = 0; h < a.heads; ++h) {
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto lse = static_cast<size_t>(h) * rows.size() + i;
        CHECK(part.outputs.at("lse")[lse] ==
              expected.outputs.at("lse")[static_cast<size_t>(h * 24 + rows[i])]);
      }
    }
  }
  const double most = ref::largest_error(dk, std::vector<double>(dk.size(), 0.0));
  CHECK(ref::largest_error(dk, expected.outputs.at("dk")) <= 0x1p-7 * most);
}

TEST_CASE("sparse attention: other lengths, lists, batches and splits compile nothing") {
  SparseCase c = small();
  c.tokens = false, c.deterministic = false, c.backward = true;
  checked(c, make_sparse(c));
  for (const auto& [rows, keys, topk, block, batch] :
       {std::tuple(1, 70, 70, 1, 1), {24, 9, 70, 1, 1}, {5, 300, 3, 16, 2}, {2, 40, 2048, 1, 3}}) {
    c.shape.rows.assign(batch, rows), c.shape.keys.assign(batch, keys);
    c.shape.topk = topk, c.shape.block = block, c.shape.causal = rows > 2;
    c.splits = rows > 4 ? 0 : 3;
    CHECK(checked(c, make_sparse(c)).compiled == 0);
  }
}

TEST_CASE("sparse attention: a cache in pages by absolute entries, in 1 to 8 parts") {
  // One query of each of three sequences, whose tokens are anywhere in a cache of 12 pages of 16.
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 512, s.rope_dim = 64, s.value_dim = 512, s.values_in_keys = true;
  s.group = 16, s.rows = {3}, s.keys = {192}, s.topk = 150, s.absolute = true;
  c.tokens = true;
  ref::SparseAttention a = make_sparse(c);
  const int lengths[] = {0, 37, 112};
  std::vector<int> pages = {7, 2, 9, 4, 0, 11, 5, 1, 10, 3, 8, 6};
  std::vector<bool> used(192);
  for (int row = 0, page = 0; row < 3; ++row) {
    for (int place = 0; place < s.topk; ++place) {
      int& entry = a.indices[static_cast<size_t>(row * s.topk + place)];
      entry = -1;
      if (place >= lengths[row]) continue;
      entry = pages[static_cast<size_t>(page + place / 16)] * 16 + place % 16;
      used[static_cast<size_t>(entry)] = true;
    }
    page += (lengths[row] + 15) / 16;
  }
  // Rows of the cache that belong to no sequence are NaN.
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (auto& [x, width] : {std::pair(&a.k, 512), std::pair(&a.k_rope, 64)}) {
    for (size_t i = 0; i < x->size(); ++i) {
      const bool there = used[i / static_cast<size_t>(width)];
      (*x)[i] = there ? numbers::rounded(LATHE_BF16, normal(random)) : NAN;
    }
  }
  a.v = a.k;
  Answer one;
  for (int splits = 0; splits <= 8; ++splits) {
    c.splits = splits;
    const Answer answer = checked(c, a);
    CHECK(run_sparse(shared_context(), c, a).outputs == answer.outputs);
  }
}

TEST_CASE("sparse attention: nothing to do, and rows without a single key in the tensor") {
  SparseCase c = small();
  c.shape.rows = {0};
  c.backward = true;
  const Outputs none = run_sparse(shared_context(), c, make_sparse(c)).outputs;
  CHECK(none.at("out").empty());
  for (const double x : none.at("dk")) CHECK(x == 0);
  c = small();
  c.shape.keys = {0}, c.shape.sinks = c.backward = true;
  const Answer answer = checked(c, make_sparse(c));
  for (const double x : answer.outputs.at("out")) CHECK(x == 0);
}

}  // namespace
