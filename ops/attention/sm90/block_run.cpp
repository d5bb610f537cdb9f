// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches the block steps by warpgroups: their tensor maps follow from the tensors of the call.
#include <algorithm>

#include "ops/attention/sm90/block_kernels.h"
#include "ops/attention/sm90/maps.h"
#include "ops/attention/sm90/order.h"

namespace lathe {

Status launch_attention_block_warpgroups(const KernelSlot& kernel, const AttentionBlockParams& step,
                                         int64_t tiles, int64_t multiprocessors,
                                         CUstream_st* stream) {
  AttentionBlockWarpgroupsParams p = {};
  p.block = step;
  const AttentionForwardParams& f = p.block.forward;
  const auto encode = [&](size_t index, const MappedTensor& map, TensorMap* out) {
    return kernel.encode(index, map, out);
  };
  LATHE_TRY(encode(0,
                   attention_map(false, f.q, {f.head_dim, f.seq_q, f.heads, f.sequences},
                                 {f.q_batch_stride, f.q_token_stride, f.q_head_stride}),
                   &p.q));
  if (f.seq_k > 0) {
    LATHE_TRY(encode(1,
                     attention_range_map(f.k, {f.head_dim, f.seq_k, f.kv_heads, f.sequences},
                                         {f.k_batch_stride, f.k_token_stride, f.k_head_stride}),
                     &p.k));
    LATHE_TRY(encode(2,
                     attention_range_map(f.v, {f.value_dim, f.seq_k, f.kv_heads, f.sequences},
                                         {f.v_batch_stride, f.v_token_stride, f.v_head_stride}),
                     &p.v));
  }
  p.order = attention_tile_order(kernel.numbers(), f, tiles, multiprocessors);
  return kernel.launch(std::min(p.order.blocks, static_cast<long long>(multiprocessors)), &p,
                       stream);
}

Status launch_attention_block_backward_warpgroups(const KernelSlot& kernel,
                                                  const AttentionBlockBackwardParams& step,
                                                  int64_t blocks, CUstream_st* stream) {
  AttentionBlockBackwardWarpgroupsParams p = {};
  p.main.backward = step.backward;
  p.ranges = step.ranges, p.range_count = step.range_count, p.first_keys = step.first_keys;
  const AttentionBackwardParams& b = p.main.backward;
  // Without a row nobody reads anything.
  if (b.seq_q > 0) {
    LATHE_TRY(
        kernel.encode(0,
                      attention_range_map(b.q, {b.head_dim, b.seq_q, b.heads, b.sequences},
                                          {b.q_batch_stride, b.q_token_stride, b.q_head_stride}),
                      &p.main.q));
    LATHE_TRY(
        kernel.encode(1,
                      attention_map(false, b.k, {b.head_dim, b.seq_k, b.kv_heads, b.sequences},
                                    {b.k_batch_stride, b.k_token_stride, b.k_head_stride}),
                      &p.main.k));
    LATHE_TRY(
        kernel.encode(2,
                      attention_map(false, b.v, {b.value_dim, b.seq_k, b.kv_heads, b.sequences},
                                    {b.v_batch_stride, b.v_token_stride, b.v_head_stride}),
                      &p.main.v));
    LATHE_TRY(kernel.encode(
        3,
        attention_range_map(b.dout, {b.value_dim, b.seq_q, b.heads, b.sequences},
                            {b.dout_batch_stride, b.dout_token_stride, b.dout_head_stride}),
        &p.main.dout));
  }
  return kernel.launch(blocks, &p, stream);
}

}  // namespace lathe
