// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which keys a block of the attention backward owns, and which queries it visits for them.
#pragma once
#include "attention/query_blocks.cuh"
#include "common/varlen.cuh"
#include "params/attention_backward.h"

namespace lathe {

// It lies in shared memory, and what is read of it is read where it is used: the products leave no
// registers for what all threads have in common.
struct KeyTile {
  int sequence, kv_head;
  int first_head, end_head;  // query heads: those of the key head, or one
  int start_q, start_k;      // of a packed sequence, otherwise 0
  int rows, keys;            // of the sequence
  int low, high;             // of its KeyWindow
  int written;               // keys of dk and dv to write: padding behind the last sequence
  int slice;                 // accumulator of dq
  int first;                 // key 0 of the tile
  int begin, full_begin, full_end, end;  // of its QueryBlocks

  static constexpr int kBytes = 128;

  __device__ __forceinline__ KeyWindow window() const volatile { return {keys, low, high}; }
  __device__ __forceinline__ bool full(int block) const volatile {
    return block >= full_begin && block < full_end;
  }
};
static_assert(sizeof(KeyTile) <= KeyTile::kBytes, "the place of a key tile is too small");

// Everything that the key tiles of a block have in common.
template <class Config>
__device__ __forceinline__ void key_tile_begin(const AttentionBackwardParams& p,
                                               unsigned sequence_head, int slice,
                                               volatile KeyTile* tile) {
  const int group = p.heads / p.kv_heads, heads = Config::kHeadsApart ? p.heads : p.kv_heads;
  const int head = static_cast<int>(sequence_head % heads),
            b = static_cast<int>(sequence_head / heads);
  int start_q = 0, start_k = 0, rows = p.seq_q, keys = p.seq_k, written = keys;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::CuSeqlens;
    const bool any = b < p.sequences;  // without sequences every key is padding
    start_q = any ? offset_at<Offset>(p.cu_seqlens_q, b, p.seq_q) : 0;
    start_k = any ? offset_at<Offset>(p.cu_seqlens_k, b, p.seq_k) : 0;
    const int end_q = any ? offset_at<Offset>(p.cu_seqlens_q, b + 1, p.seq_q) : 0;
    const int end_k = any ? offset_at<Offset>(p.cu_seqlens_k, b + 1, p.seq_k) : 0;
    rows = maximum(end_q - start_q, 0), keys = maximum(end_k - start_k, 0);
    written = b + 1 >= p.sequences ? p.seq_k - start_k : keys;
  }
  const KeyWindow window = key_window(rows, keys, Config::kLocal ? p.window_left : -1,
                                      Config::kLocal ? p.window_right : -1);
  tile->sequence = b, tile->kv_head = Config::kHeadsApart ? head / group : head;
  tile->first_head = Config::kHeadsApart ? head : head * group;
  tile->end_head = Config::kHeadsApart ? head + 1 : (head + 1) * group;
  tile->start_q = start_q, tile->start_k = start_k;
  tile->rows = rows, tile->keys = keys, tile->low = window.low, tile->high = window.high;
  tile->written = written, tile->slice = slice;
}

// The tile of keys that begins at `first`.
template <class Config>
__device__ __forceinline__ void key_tile_at(int first, volatile KeyTile* tile) {
  const QueryBlocks blocks =
      query_blocks<Config::kTileM, Config::kTileN>(tile->window(), tile->rows, first);
  tile->first = first;
  tile->begin = blocks.begin, tile->end = blocks.end;
  tile->full_begin = blocks.full_begin, tile->full_end = blocks.full_end;
}

}  // namespace lathe
