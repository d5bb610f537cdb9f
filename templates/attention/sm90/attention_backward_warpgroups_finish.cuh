// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_backward_warpgroups_finish: attention_backward_finish.cuh's results, where the sums of
// dq lie in tiles (dq_tiles.cuh). A block has one tile, or what a block of that kernel has.
#pragma once
#include "attention/attention_backward_finish.cuh"
#include "attention/backward/gradient_sums.cuh"
#include "attention/sm90/dq_tiles.cuh"
#include "params/attention_backward_warpgroups.h"

namespace lathe {

// dq[i] = softmax_scale sum_j ds k[j] of the rows of tile `tile` of all.
template <class Config>
__device__ __forceinline__ void finish_dq_tile(const AttentionBackwardWarpgroupsFinishParams& p,
                                               int tile) {
  using Element = typename Config::Element;
  using Tile = DqTile<Config>;
  const AttentionBackwardFinishParams& f = p.finish;
  const int head_of_all = tile / p.dq_tiles;
  const float* from = static_cast<const float*>(f.dq_sums) +
                      static_cast<long long>(tile) * Tile::kFloats + threadIdx.x % 128 * 4;
  // With an order of dq nothing has been stored in a tile that no keys see.
  const bool any = p.dq_order == nullptr ||
                   load_element(static_cast<const long long*>(p.dq_order) + 1 + tile) != 0;
  tile -= head_of_all * p.dq_tiles;
  int head = head_of_all % f.heads, rows = f.seq_q, written = f.seq_q;
  long long start = 0;
  if constexpr (Config::kPacked) {
    head = head_of_all;
    if (p.sequences > 0) {
      const int b = sequence_of_dq_tile<Config>(p.cu_seqlens_q, p.sequences, f.seq_q, tile);
      using Offset = typename Config::CuSeqlens;
      start = offset_at<Offset>(p.cu_seqlens_q, b, f.seq_q);
      const int end = offset_at<Offset>(p.cu_seqlens_q, b + 1, f.seq_q);
      rows = end - static_cast<int>(start);
      // Rows behind the last sequence are written too, as 0 whatever their sums are: these are 0
      // times its keys, which may be NaN.
      written = b + 1 < p.sequences ? rows : f.seq_q - static_cast<int>(start);
      tile -= first_dq_tile<Config>(p.cu_seqlens_q, b, f.seq_q);
    }
  }
  const int sequence = Config::kPacked ? 0 : head_of_all / f.heads;
#pragma unroll 1
  for (int part = threadIdx.x / 128; part < Tile::kParts; part += Config::kThreads / 128) {
    float sums[8][4] = {};
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      Words<16> four = {};
      if (!Tile::has_group(part, n)) continue;
      if (any) load_global(from + part * Tile::kPartFloats + n * Tile::kGroupFloats, four);
#pragma unroll
      for (int c = 0; c < 4; ++c) sums[n][c] = element_of<float>(four, c);
    }
    const int row = tile * Config::kTileM + Tile::row(part) + threadIdx.x / 32 % 4 * 16;
    Element* to = static_cast<Element*>(f.dq) + sequence * f.dq_batch_stride +
                  start * f.dq_token_stride + head * f.dq_head_stride + Tile::column(part);
    store_rows<ColumnShare<64, 1>>(sums, 0, f.softmax_scale, to, f.dq_token_stride, row, rows,
                                   written, f.head_dim - Tile::column(part));
  }
}

template <class Config>
__device__ void attention_backward_warpgroups_finish(
    const AttentionBackwardWarpgroupsFinishParams& p) {
  if (blockIdx.x < static_cast<unsigned>(p.finish.dq_blocks)) {
    finish_dq_tile<Config>(p, static_cast<int>(blockIdx.x));
  } else {
    finish_other<Config>(p.finish, static_cast<long long>(blockIdx.x) - p.finish.dq_blocks);
  }
}

}  // namespace lathe
