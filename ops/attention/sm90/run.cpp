// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Launches the forward by warpgroups: its tensor maps follow from the tensors of the call.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/attention/sm90/kernels.h"
#include "ops/attention/sm90/maps.h"
#include "ops/attention/sm90/order.h"

namespace lathe {
namespace {

// Keys and values of a section of heads fit in L2 beside other data.
constexpr int64_t kSectionBytes = int64_t{32} << 20;

}  // namespace

AttentionTileOrder attention_tile_order(const KernelNumbers& kernel,
                                        const AttentionForwardParams& f, int64_t tiles,
                                        int64_t most) {
  AttentionTileOrder out = {};
  const int64_t columns = kernel.pack_gqa != 0 ? f.kv_heads : f.heads;
  out.blocks = tiles;
  if (kernel.packed != 0) {
    const int64_t tokens =
        kernel.m / (kernel.pack_gqa != 0 ? f.heads / f.kv_heads : 1);  // of a tile
    out.blocks = columns * (f.seq_q / tokens + std::max(f.sequences, 1));
  }
  const int64_t grid = std::min<int64_t>(out.blocks, most);
  out.section = 1, out.section_turns = 1;
  out.turns = static_cast<unsigned>(ceil_div(out.blocks, grid));
  if (kernel.packed != 0 || kernel.local == 0) return out;
  const int64_t key_bytes = int64_t{2} * f.seq_k * (f.head_dim + f.value_dim);
  const int64_t heads = columns * f.sequences, sharing = columns / f.kv_heads;
  const int64_t section =
      std::clamp<int64_t>(kSectionBytes / std::max<int64_t>(key_bytes, 1) * sharing, 1, heads);
  out.section = static_cast<int>(section);
  out.section_turns = static_cast<unsigned>(ceil_div(section * f.tiles, grid));
  const int64_t whole = (heads - 1) / section;
  out.turns = static_cast<unsigned>(whole * out.section_turns +
                                    ceil_div((heads - whole * section) * f.tiles, grid));
  return out;
}

Status launch_attention_warpgroups(const KernelSlot& kernel, int64_t blocks,
                                   int64_t multiprocessors, CUstream_st* stream,
                                   AttentionWarpgroupsParams* p) {
  const AttentionForwardParams& f = p->forward;
  const KernelNumbers& numbers = kernel.numbers();
  const bool packed = numbers.packed != 0;
  const AttentionStrides q_strides = {f.q_batch_stride, f.q_token_stride, f.q_head_stride};
  const MappedExtents q_extents = {f.head_dim, f.seq_q, f.heads, f.sequences};
  LATHE_TRY(kernel.encode(
      0,
      numbers.pack_gqa != 0 ? attention_group_map(packed, f.q, q_extents, q_strides,
                                                  f.heads / f.kv_heads, static_cast<int>(numbers.m))
                            : attention_map(packed, f.q, q_extents, q_strides),
      &p->q));
  if (f.seq_k > 0) {
    LATHE_TRY(
        kernel.encode(1,
                      attention_map(packed, f.k, {f.head_dim, f.seq_k, f.kv_heads, f.sequences},
                                    {f.k_batch_stride, f.k_token_stride, f.k_head_stride}),
                      &p->k));
    LATHE_TRY(
        kernel.encode(2,
                      attention_map(packed, f.v, {f.value_dim, f.seq_k, f.kv_heads, f.sequences},
                                    {f.v_batch_stride, f.v_token_stride, f.v_head_stride}),
                      &p->v));
  } else {
    p->k = p->v = p->q;  // nobody reads these
  }
  p->order = attention_tile_order(numbers, f, blocks, multiprocessors);
  return kernel.launch(std::min<int64_t>(p->order.blocks, multiprocessors), p, stream);
}

}  // namespace lathe
