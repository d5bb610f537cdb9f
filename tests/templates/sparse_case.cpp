// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sparse_case.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>

namespace sparse_case {
namespace {

int entry_of(const Shape& s, int place, int keys, int origin, std::mt19937& random) {
  const auto below = [&](int most) { return static_cast<int>(random() % std::max(most, 1)); };
  const int entries = (keys + s.block - 1) / s.block, first = s.absolute ? origin : 0;
  const int some = first + below(entries);
  switch (s.lists) {
    case Lists::nothing:
      return -1;
    case Lists::one_key:
      return first + entries / 2;
    case Lists::last_only:
      return place + 1 == s.topk ? some : -1;
    case Lists::all:
      return place < entries ? first + place : -1;
    case Lists::mixed:
      break;
  }
  switch (below(12)) {
    case 0:
      return -1;
    case 1:
      return INT_MIN + below(3);
    case 2:
      return INT_MAX - below(3);
    case 3:
      return first + entries + below(3);
    case 4:
      return first - 1;
    case 5:
      return first + entries - 1;
    default:
      return some;
  }
}

}  // namespace

ref::SparseAttention make(const Shape& s, lathe_dtype dtype, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  ref::SparseAttention a;
  a.heads = s.kv_heads * s.group, a.kv_heads = s.kv_heads;
  a.head_dim = s.head_dim, a.rope_dim = s.rope_dim, a.value_dim = s.value_dim;
  a.topk = s.topk, a.block = s.block, a.packed = s.packed, a.causal = s.causal;
  a.absolute = s.absolute, a.scale = 1 / std::sqrt(static_cast<double>(s.head_dim + s.rope_dim));
  a.begin_q = {0};
  int64_t keys = 0;
  for (size_t n = 0; n < s.rows.size(); ++n) {
    a.begin_q.push_back(a.begin_q.back() + s.rows[n]);
    a.begin_k.push_back(keys), a.end_k.push_back(keys += s.keys[n]);
  }
  const int64_t rows = a.begin_q.back() + s.padding_q, all_keys = keys + s.padding_k;
  const auto fill = [&](ref::Array* x, int64_t tokens, int64_t real, int64_t row) {
    for (int64_t i = 0; i < tokens * row; ++i) {
      x->push_back(i < real * row ? numbers::rounded(dtype, normal(random)) : std::nan(""));
    }
  };
  fill(&a.q, rows, a.begin_q.back(), a.heads * s.head_dim);
  fill(&a.q_rope, rows, a.begin_q.back(), a.heads * s.rope_dim);
  fill(&a.dout, rows, a.begin_q.back(), a.heads * s.value_dim);
  fill(&a.k, all_keys, all_keys, s.kv_heads * s.head_dim);
  fill(&a.k_rope, all_keys, all_keys, s.kv_heads * s.rope_dim);
  if (!s.values_in_keys) fill(&a.v, all_keys, all_keys, s.kv_heads * s.value_dim);
  a.indices.assign(static_cast<size_t>(rows * s.kv_heads * s.topk), 0);
  for (size_t n = 0; n < s.rows.size(); ++n) {
    for (int64_t i = a.begin_q[n] * s.kv_heads * s.topk; i < a.begin_q[n + 1] * s.kv_heads * s.topk;
         ++i) {
      a.indices[static_cast<size_t>(i)] = entry_of(s, static_cast<int>(i % s.topk), s.keys[n],
                                                   static_cast<int>(a.begin_k[n]), random);
    }
  }
  for (int64_t i = 0; s.q_pos && i < rows; ++i) {
    const int most = s.keys.empty() ? 4 : s.keys[0] + 4;
    a.q_pos.push_back(i % 7 == 5 ? -1 - static_cast<int>(i) : static_cast<int>(random() % most));
  }
  for (int h = 0; s.sinks && h < a.heads; ++h) {
    a.sinks.push_back(h % 3 == 1 ? -ref::kInfinity : static_cast<float>(normal(random)));
  }

  std::vector<bool> named(static_cast<size_t>(all_keys * s.kv_heads));
  ref::each_row(a, [&](int64_t, const ref::SparseRow& row) {
    for (const int64_t j : row.named()) named[row.key(j, 1)] = true;
  });
  for (auto& [x, width] : {std::pair(&a.k, s.head_dim), std::pair(&a.k_rope, s.rope_dim),
                           std::pair(&a.v, s.value_dim)}) {
    for (size_t i = 0; i < x->size(); ++i) {
      if (!named[i / static_cast<size_t>(width)]) (*x)[i] = std::nan("");
    }
  }
  for (size_t i = 0; s.values_in_keys && i < named.size(); ++i) {
    const auto from = a.k.begin() + static_cast<std::ptrdiff_t>(i) * s.head_dim;
    a.v.insert(a.v.end(), from, from + s.value_dim);
  }
  return a;
}

std::vector<char> encode(lathe_dtype dtype, const ref::Array& values) {
  const size_t bytes = numbers::bytes_of(dtype);
  std::vector<char> out(std::max<size_t>(values.size(), 8) * bytes);
  for (size_t i = 0; i < values.size(); ++i) numbers::encode(dtype, values[i], &out[i * bytes]);
  return out;
}

ref::Array decode(const sim::test::Device& device, lathe_dtype dtype, const void* from,
                  size_t count) {
  const size_t bytes = numbers::bytes_of(dtype);
  const auto raw = device.download<char>(reinterpret_cast<uint64_t>(from), count * bytes);
  ref::Array out(count);
  for (size_t i = 0; i < count; ++i) out[i] = numbers::decode(dtype, &raw[i * bytes]);
  return out;
}

void dense_strides(const Shape& s, bool keys, int heads, int width, long long* batch,
                   long long* token, long long* head) {
  const std::vector<int>& tokens = keys ? s.keys : s.rows;
  *head = width, *token = static_cast<long long>(heads) * width;
  *batch = s.packed || tokens.empty() ? 0 : tokens[0] * *token;
}

lathe::SparseInputs upload(sim::test::Device& device, const Shape& s, const ref::SparseAttention& a,
                           lathe_dtype dtype, bool wide_offsets) {
  lathe::SparseInputs in = {};
  const auto some = [&](auto values) {
    values.resize(std::max<size_t>(values.size(), 8));
    return at(device.upload(values));
  };
  const auto offsets = [&](const std::vector<int64_t>& values) {
    return wide_offsets ? some(values) : some(std::vector<int>(values.begin(), values.end()));
  };
  in.q = at(device.upload(encode(dtype, a.q)));
  in.k = at(device.upload(encode(dtype, a.k)));
  if (!s.values_in_keys) in.v = at(device.upload(encode(dtype, a.v)));
  if (s.rope_dim > 0) {
    in.q_rope = at(device.upload(encode(dtype, a.q_rope)));
    in.k_rope = at(device.upload(encode(dtype, a.k_rope)));
  }
  in.indices = some(a.indices);
  if (s.packed) {
    in.cu_seqlens_q = offsets(a.begin_q);
    in.key_starts = offsets(a.begin_k), in.key_ends = offsets(a.end_k);
  }
  if (s.q_pos) in.q_pos = some(a.q_pos);
  if (s.sinks) in.sinks = some(std::vector<float>(a.sinks.begin(), a.sinks.end()));
  const int heads = s.kv_heads * s.group;
  dense_strides(s, false, heads, s.head_dim, &in.q_batch_stride, &in.q_token_stride,
                &in.q_head_stride);
  dense_strides(s, true, s.kv_heads, s.head_dim, &in.k_batch_stride, &in.k_token_stride,
                &in.k_head_stride);
  dense_strides(s, true, s.kv_heads, s.value_dim, &in.v_batch_stride, &in.v_token_stride,
                &in.v_head_stride);
  dense_strides(s, false, heads, s.rope_dim, &in.q_rope_batch_stride, &in.q_rope_token_stride,
                &in.q_rope_head_stride);
  dense_strides(s, true, s.kv_heads, s.rope_dim, &in.k_rope_batch_stride, &in.k_rope_token_stride,
                &in.k_rope_head_stride);
  dense_strides(s, false, s.kv_heads, s.topk, &in.indices_batch_stride, &in.indices_token_stride,
                &in.indices_head_stride);
  in.sequences = static_cast<int>(s.rows.size());
  in.heads = heads, in.kv_heads = s.kv_heads;
  in.seq_q = static_cast<int>(s.packed ? a.rows() : s.rows[0]);
  in.seq_k = static_cast<int>(s.packed ? a.keys() : s.keys[0]);
  in.head_dim = s.head_dim, in.rope_dim = s.rope_dim, in.value_dim = s.value_dim;
  in.topk = s.topk;
  while ((1 << in.block_shift) < s.block) ++in.block_shift;
  in.absolute = s.absolute, in.causal = s.causal;
  in.scale = static_cast<float>(a.scale);
  return in;
}

std::shared_ptr<const lathe::Compiler> compiler() {
  const auto opened = lathe::Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

std::string compile(const lathe::Compiler& nvrtc, const lathe::KernelSpec& spec) {
  static std::map<std::string, std::string> done;
  std::string& ptx = done[spec.text()];
  if (!ptx.empty()) return ptx;
  const auto compiled = nvrtc.compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  MESSAGE(spec.text(), ": ", compiled->report.registers, " registers, ",
          compiled->report.spill_stores, " spilt");
  CHECK(compiled->report.spill_stores == 0);
  CHECK(compiled->report.stack_bytes == 0);
  return ptx = compiled->ptx;
}

}  // namespace sparse_case
