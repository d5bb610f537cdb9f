// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., RoFormer, 2021) of the first columns of queries and new
// keys, in float32 and rounded once.
#pragma once
#include "attention/decode/rows.cuh"

namespace lathe {

// Pair i of a token at `position` turns: (a, b) becomes (a cos - b sin, b cos + a sin).
template <class Config>
__device__ __forceinline__ void rotate_pair(const AttentionRotary& rotary, int position, int pair,
                                            float& a, float& b) {
  using Angle = typename Config::Angle;
  const int row = clamp(position, 0, rotary.rows - 1);
  const long long at = static_cast<long long>(row) * (rotary.columns / 2) + pair;
  const float cosine = to_float(load_element(static_cast<const Angle*>(rotary.cos) + at));
  const float sine = to_float(load_element(static_cast<const Angle*>(rotary.sin) + at));
  const float turned = __fmaf_rn(a, cosine, -__fmul_rn(b, sine));
  b = __fmaf_rn(b, cosine, __fmul_rn(a, sine));
  a = turned;
}
// The columns of pair i: neighbours, or a half apart.
template <class Config>
__device__ __forceinline__ int rotary_column(const AttentionRotary& rotary, int pair, int which) {
  return Config::kInterleaved ? 2 * pair + which : pair + which * (rotary.columns / 2);
}
// The position of row `row` of sequence b, which begins at row `start` of the call. `before`: keys
// of the sequence ahead of the call's first row.
__device__ __forceinline__ int rotary_position(const AttentionRotary& rotary, int b, int start,
                                               int row, int before) {
  if (rotary.positions == nullptr) return before + row;
  const int* positions = static_cast<const int*>(rotary.positions);
  return rotary.of_rows ? load_element(positions + start + row) : load_element(positions + b) + row;
}

// Where column `column` of a row lies in a tile of 16-bit elements.
template <int kRows, int kWidth>
__device__ __forceinline__ int element_offset(int row, int column) {
  using Shape = Tile<kRows, kWidth>;
  const int chunk = column / 8, within = column % 8 * 2;
  if (chunk >= 8 * Shape::kPanels) {
    return Shape::kHalfAt + half_panel_offset(row, chunk - 8 * Shape::kPanels) + within;
  }
  return chunk / 8 * kRows * 128 + panel_offset(row, chunk % 8) + within;
}

// Turns the queries of a tile, which copies bring to `q` in shared memory. By all threads: a warp
// has a row at a time, so that its lanes fall into different banks.
template <class Config>
__device__ __forceinline__ void rotate_queries(const AttentionDecodeParams& decode,
                                               const QueryTile& tile, const PageTable& table,
                                               char* q) {
  using Element = typename Config::Element;
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();  // the rows are there for all
  const AttentionForwardParams& p = decode.forward;
  const int start = IsRagged<Config>::kValue ? tile.start_q : tile.sequence * p.seq_q;
  const int before = table.stored() - (decode.appended > 0 ? 0 : tile.rows);
  const int lane = threadIdx.x % 32, group = tile.group;
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < Config::kTileM; row += Config::kThreads / 32) {
    const int query = (tile.first + row) / group;
    if (query >= tile.rows) break;
    const int position = rotary_position(decode.rotary, tile.sequence, start, query, before);
    for (int pair = lane; pair < decode.rotary.columns / 2; pair += 32) {
      const auto at = [&](int which) {
        const int column = rotary_column<Config>(decode.rotary, pair, which);
        return reinterpret_cast<Element*>(
            q + element_offset<Config::kTileM, Config::kWidth>(row, column));
      };
      float a = to_float(*at(0)), b = to_float(*at(1));
      rotate_pair<Config>(decode.rotary, position, pair, a, b);
      *at(0) = from_float<Element>(a), *at(1) = from_float<Element>(b);
    }
  }
  __syncthreads();  // all rows are turned
}

}  // namespace lathe
