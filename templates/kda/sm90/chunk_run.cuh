// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run of chunks by warpgroups (sm_90a): the state at the start of a chunk follows from that of
// the chunk before, and is rounded once more. So the walk forward writes fewer states than there
// are chunks.
#pragma once
#include "kda/sm90/chunk_rows.cuh"

namespace lathe {

template <class Config>
struct KdaChunkRun : KdaChunkRows<Config> {
  using Blocks = KdaChunkRows<Config>;
  using Blocks::block, Blocks::g, Blocks::lane, Blocks::p, Blocks::part, Blocks::shared, Blocks::t;
  using Blocks::Blocks;
  using Blocks::tile;
  using typename Blocks::Element;
  using typename Blocks::Smem;
  static constexpr int kEach = Blocks::kEach;

  // Whether the chunk has a slot: a run may be longer than what its sequence has.
  __device__ __forceinline__ bool has_slot() const {
    if (tile.first < tile.count) return true;
    if constexpr (!Config::kPacked) return false;
    const int behind = tile.sequence + 1;
    return tile.slot <
           (behind < this->in.sequences ? (tile.start + tile.count) / kKdaChunk + behind : p.slots);
  }
  // The lane's word of h in place of a tile of q: rows g and g + 8 of the warp's 16 of 64 values.
  __device__ __forceinline__ unsigned state_word(int of_values, int h, int n) const {
    return shared + Smem::kH + part / 2 * Smem::kStates +
           swizzled(64 * of_values + 16 * block + g + 8 * h, part % 2 * 4 + n) + 4 * t;
  }
  __device__ __forceinline__ void carry_state() const;
};

// h becomes that of the next chunk: vn^T kd is added of one block after another, and the block's
// decay comes behind it or, if it is cut, before. A warp has 16 rows of every 64 values, and its
// part of K.
template <class Config>
__device__ __forceinline__ void KdaChunkRun<Config>::carry_state() const {
  float x[Smem::kValuePanels][kEach];
#pragma unroll
  for (int i = 0; i < Smem::kValuePanels; ++i) {
#pragma unroll
    for (int at = 0; at < kEach; at += 2) {
      unpack_pair(load_shared_word(state_word(i, at / 2 % 2, at / 4)), Element{}, x[i][at],
                  x[i][at + 1]);
      x[i][at] *= Blocks::kUnscaling, x[i][at + 1] *= Blocks::kUnscaling;
    }
  }
#pragma unroll 1
  for (int b = 0; b < 4; ++b) {
    const bool first = load_shared_word(this->cut_at(b)) != 0;
    float by[8];
    this->load_decays(b, by);
    unsigned columns[2][4];
    this->load_columns(Smem::kKeyColumns, b, columns);
#pragma unroll
    for (int i = 0; i < Smem::kValuePanels; ++i) {
      unsigned values[4];
      load_matrix_transposed(values, shared + Smem::kVn + i * Smem::kRows +
                                         swizzled(16 * b + row_of_chunks_first(lane),
                                                  2 * block + chunk_of_chunks_first(lane)));
      if (first) Blocks::decay(x[i], by);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float(&d)[4] = reinterpret_cast<float(&)[4]>(x[i][4 * n]);
        multiply_add(d, values, columns[n / 2][n % 2 * 2], columns[n / 2][n % 2 * 2 + 1],
                     Element{});
      }
      if (!first) Blocks::decay(x[i], by);
    }
  }
#pragma unroll
  for (int i = 0; i < Smem::kValuePanels; ++i) {
#pragma unroll
    for (int at = 0; at < kEach; at += 2) {
      store_shared(
          state_word(i, at / 2 % 2, at / 4),
          pack_pair(Blocks::kScaling * x[i][at], Blocks::kScaling * x[i][at + 1], Element{}));
    }
  }
}

}  // namespace lathe
