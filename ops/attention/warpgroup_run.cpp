// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches the forward by warpgroups: its tensor maps follow from the tensors of the call.
#include <algorithm>
#include <cstdint>

#include "cache/tensor_map.h"
#include "codegen/base/integers.h"
#include "ops/attention/warpgroup_kernels.h"

namespace lathe {
namespace {

// Keys and values of a section of heads fit in L2 beside other data.
constexpr int64_t kSectionBytes = int64_t{32} << 20;

// Returns a tensor with dimensions column, token, head, sequence.
MappedTensor mapped(const void* data, int64_t columns, int64_t tokens, int64_t heads,
                    int64_t sequences, int64_t token_stride, int64_t head_stride,
                    int64_t batch_stride) {
  return {
      data, {columns, tokens, heads, sequences}, {1, token_stride, head_stride, batch_stride}, {}};
}

// Returns q with dimensions column, head of a group, token, group, sequence.
MappedTensor grouped(const AttentionForwardParams& f, int64_t sequences, int rows) {
  const int group = f.heads / f.kv_heads;
  return {f.q,
          {f.head_dim, group, f.seq_q, f.kv_heads, sequences},
          {1, f.q_head_stride, f.q_token_stride, f.q_head_stride * group, f.q_batch_stride},
          {0, group, rows / group, 0, 0}};
}

// Makes a tensor of packed sequences what a ragged map has
// (templates/params/attention_warpgroups.h): it begins kRaggedRows ahead of the tensor, and its
// last dimension moves it on by rows. Nothing is read there: a copy's rows are those of one
// sequence or outside of the map.
void make_ragged(size_t token, size_t last, MappedTensor* tensor) {
  constexpr int64_t kElementBytes = 2;
  const auto address = reinterpret_cast<uintptr_t>(tensor->data);
  const auto ahead = static_cast<uintptr_t>(kRaggedRows * tensor->stride[token] * kElementBytes);
  tensor->data = reinterpret_cast<const void*>(address - ahead);  // NOLINT: addresses wrap
  tensor->extent[token] = kRaggedRows;
  tensor->extent[last] = INT32_MAX;
  tensor->stride[last] = tensor->stride[token];
}

// Deals tiles out: sm90/tile_order.cuh.
void set_order(const KernelSpec& spec, int64_t blocks, int64_t multiprocessors,
               AttentionWarpgroupsParams* p) {
  const AttentionForwardParams& f = p->forward;
  const int64_t columns = spec.constant("pack_gqa") != 0 ? f.kv_heads : f.heads;
  const bool packed = spec.constant("packed") != 0;
  const bool grouped = spec.constant("pack_gqa") != 0;
  const int64_t tokens = spec.constant("m") / (grouped ? f.heads / f.kv_heads : 1);  // of a tile
  p->blocks = packed ? columns * (f.seq_q / tokens + std::max(f.sequences, 1)) : blocks;
  const int64_t grid = std::min<int64_t>(p->blocks, multiprocessors);
  p->section = 1, p->section_turns = 1;
  p->turns = static_cast<unsigned>(ceil_div(p->blocks, grid));
  if (packed || spec.constant("local") == 0) return;
  const int64_t key_bytes = int64_t{2} * f.seq_k * (f.head_dim + f.value_dim);
  const int64_t heads = columns * f.sequences, sharing = columns / f.kv_heads;
  const int64_t section =
      std::clamp<int64_t>(kSectionBytes / std::max<int64_t>(key_bytes, 1) * sharing, 1, heads);
  p->section = static_cast<int>(section);
  p->section_turns = static_cast<unsigned>(ceil_div(section * f.tiles, grid));
  const int64_t whole = (heads - 1) / section;
  p->turns = static_cast<unsigned>(whole * p->section_turns +
                                   ceil_div((heads - whole * section) * f.tiles, grid));
}

}  // namespace

Status launch_attention_warpgroups(const KernelSlot& kernel, const AttentionForwardParams& forward,
                                   int64_t blocks, int64_t multiprocessors, CUstream_st* stream) {
  AttentionWarpgroupsParams p = {};
  p.forward = forward;
  const AttentionForwardParams& f = p.forward;
  const bool packed = kernel->constant("packed") != 0;
  const bool grouped_heads = kernel->constant("pack_gqa") != 0;
  const auto encode = [&](size_t index, MappedTensor tensor, TensorMap* out) {
    const bool groups = index == 0 && grouped_heads;
    const size_t token = groups ? 2 : 1, last = groups ? 4 : 3;
    // A dimension of one element has a stride that nobody uses.
    for (size_t k = 1; k <= last; ++k) {
      if (tensor.extent[k] == 1) tensor.stride[k] = 8;
    }
    if (packed) make_ragged(token, last, &tensor);
    return kernel.encode(index, tensor, out);
  };
  // Packed tensors are one sequence of tokens.
  const int64_t sequences = packed ? 1 : f.sequences;
  const MappedTensor q = grouped_heads
                             ? grouped(f, sequences, static_cast<int>(kernel->constant("m")))
                             : mapped(f.q, f.head_dim, f.seq_q, f.heads, sequences,
                                      f.q_token_stride, f.q_head_stride, f.q_batch_stride);
  LATHE_TRY(encode(0, q, &p.q));
  if (f.seq_k > 0) {
    LATHE_TRY(encode(1,
                     mapped(f.k, f.head_dim, f.seq_k, f.kv_heads, sequences, f.k_token_stride,
                            f.k_head_stride, f.k_batch_stride),
                     &p.k));
    LATHE_TRY(encode(2,
                     mapped(f.v, f.value_dim, f.seq_k, f.kv_heads, sequences, f.v_token_stride,
                            f.v_head_stride, f.v_batch_stride),
                     &p.v));
  }
  set_order(*kernel, blocks, multiprocessors, &p);
  return kernel.launch(std::min<int64_t>(p.blocks, multiprocessors), &p, stream);
}

}  // namespace lathe
