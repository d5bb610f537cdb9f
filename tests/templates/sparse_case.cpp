// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sparse_case.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace sparse_case {
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
  in.q_pos_batch_stride = in.seq_q, in.origin_stride = in.seq_k;
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

std::string compile(const lathe::Compiler& nvrtc, const lathe::KernelSpec& spec,
                    const std::string& arch) {
  static std::map<std::string, std::string> done;
  std::string& ptx = done[spec.text() + " " + arch];
  if (!ptx.empty()) return ptx;
  const auto compiled = nvrtc.compile(lathe::emit_unit(spec, arch), arch);
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  MESSAGE(spec.text(), ": ", compiled->report.registers, " registers, ",
          compiled->report.spill_stores, " spilt");
  CHECK(compiled->report.spill_stores == 0);
  CHECK(compiled->report.stack_bytes == 0);
  return ptx = compiled->ptx;
}

}  // namespace sparse_case
