// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A sequence of packed queries over pages, as the kernels by warpgroups cut it into tiles.
#pragma once
#include "attention/decode/pages.cuh"
#include "common/varlen.cuh"
#include "params/attention_ragged_warpgroups.h"

namespace lathe {

constexpr int kPartialRows = 4;  // of a slot of partial results, which one block joins

// Sequence B stands for the rows behind the last sequence, which are padding and see no keys. Whole
// groups of query heads are rows of a tile.
template <class Config>
struct RaggedSequence {
  using Offset = typename Config::CuSeqlens;
  int start, rows, keys;
  int written;  // rows of `out`
  int tiles;    // of a key head

  __device__ __forceinline__ RaggedSequence(const AttentionDecodeParams& decode, int number,
                                            int group) {
    const AttentionForwardParams& p = decode.forward;
    const bool padding = number >= p.sequences;
    start = offset_at<Offset>(p.cu_seqlens_q, number, p.seq_q);
    const int end = padding ? p.seq_q : offset_at<Offset>(p.cu_seqlens_q, number + 1, p.seq_q);
    written = maximum(end - start, 0);
    rows = padding ? 0 : written;
    keys = rows > 0 ? PageTable(decode.pages, number).keys(decode.appended > 0 ? rows : 0) : 0;
    tiles = ceil_div(written, Config::kTileM / group);
  }

  // The slots of partial results that a split of a tile has.
  static __device__ __forceinline__ int partial_slots(int rows, int group) {
    const int used = Config::kTileM / group * group;
    const long long all = static_cast<long long>(rows) * group;
    return ceil_div(all < used ? static_cast<int>(all) : used, kPartialRows);
  }
};

}  // namespace lathe
