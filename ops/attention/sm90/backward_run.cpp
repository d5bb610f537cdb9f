// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches the backward by warpgroups: its tensor maps follow from the tensors of the call.
#include "ops/attention/sm90/backward_kernels.h"
#include "ops/attention/sm90/maps.h"

namespace lathe {

Status launch_attention_backward_warpgroups(const KernelSlot& kernel,
                                            const AttentionBackwardParams& backward,
                                            const AttentionBackwardLaunch& launch, void* dq_order,
                                            CUstream_st* stream) {
  AttentionBackwardWarpgroupsParams p = {};
  p.backward = backward;
  p.dq_order = dq_order;
  p.section = static_cast<int>(launch.dq_section);
  p.dq_tiles = static_cast<int>(launch.dq_tiles);
  const AttentionBackwardParams& b = p.backward;
  const bool packed = kernel.numbers().packed != 0;
  const auto encode = [&](size_t index, const void* data, const MappedExtents& extents,
                          const AttentionStrides& strides, TensorMap* out) {
    return kernel.encode(index, attention_map(packed, data, extents, strides), out);
  };
  // Without a query nobody reads anything.
  if (b.seq_q > 0) {
    LATHE_TRY(encode(0, b.q, {b.head_dim, b.seq_q, b.heads, b.sequences},
                     {b.q_batch_stride, b.q_token_stride, b.q_head_stride}, &p.q));
    LATHE_TRY(encode(1, b.k, {b.head_dim, b.seq_k, b.kv_heads, b.sequences},
                     {b.k_batch_stride, b.k_token_stride, b.k_head_stride}, &p.k));
    LATHE_TRY(encode(2, b.v, {b.value_dim, b.seq_k, b.kv_heads, b.sequences},
                     {b.v_batch_stride, b.v_token_stride, b.v_head_stride}, &p.v));
    LATHE_TRY(encode(3, b.dout, {b.value_dim, b.seq_q, b.heads, b.sequences},
                     {b.dout_batch_stride, b.dout_token_stride, b.dout_head_stride}, &p.dout));
  }
  return kernel.launch(launch.main_blocks, &p, stream);
}

}  // namespace lathe
