// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shared memory of latent decoding by warpgroups, and the copies that bring keys there.
#pragma once
#include "attention/decode/rows.cuh"
#include "common/mbarrier.cuh"
#include "common/tma.cuh"
#include "params/attention_decode_warpgroups.h"

namespace lathe {

// [Q][even and odd keys][P of odd keys][maxima and sums of the rows][barriers]
//
// P of even keys lie in their last panel, whose columns are no values: once the scores are
// there nobody reads it.
template <class Config>
struct AttentionDecodeWarpgroupsSmem {
  static constexpr int kPanel = 64 * 128;  // 64 rows of 64 columns
  static constexpr int kPanels = Config::kWidth / 64, kHalf = Config::kValueWidth / 128;
  static constexpr int kTile = kPanels * kPanel;
  static constexpr int kKeysAt = kTile, kPAt = kKeysAt + 2 * kTile;
  static constexpr int kRowsAt = kPAt + kPanel;
  static constexpr int kBarriersAt = kRowsAt + 4 * 64 * 4;
  static constexpr int kBytes = kBarriersAt + 8 * 2 * (kPanels + 2);
  static_assert(Config::kTileM == 64 && Config::kTileN == 64 && Config::kThreads == 384 &&
                    Config::kWidth % 64 == 0 && Config::kValueWidth == 512 &&
                    Config::kWidth > Config::kValueWidth,
                "two warpgroups of 256 columns, and a panel without values");
};

// Shared memory as addresses. A `full` barrier tells that a panel has landed. `free_left` tells
// that the panels with the values of the left warpgroup have been read, `free_right` the others.
template <class Config>
struct DecodeBuffers {
  using Smem = AttentionDecodeWarpgroupsSmem<Config>;
  static constexpr unsigned kPanels = Smem::kPanels;
  unsigned shared;

  __device__ __forceinline__ unsigned q() const { return shared; }
  __device__ __forceinline__ unsigned keys(unsigned odd) const {
    return shared + Smem::kKeysAt + odd * Smem::kTile;
  }
  __device__ __forceinline__ unsigned p(unsigned odd) const {
    return odd ? shared + Smem::kPAt : keys(0) + (kPanels - 1) * Smem::kPanel;
  }
  // Word `row` of: maxima with even keys, with odd keys, sums of even P, of odd P.
  __device__ __forceinline__ unsigned of_row(unsigned what, unsigned row) const {
    return shared + Smem::kRowsAt + what * 256 + row * 4;
  }
  __device__ __forceinline__ unsigned full(unsigned odd, unsigned panel) const {
    return shared + Smem::kBarriersAt + 8 * (odd * kPanels + panel);
  }
  __device__ __forceinline__ unsigned free_left(unsigned odd) const {
    return shared + Smem::kBarriersAt + 8 * (2 * kPanels + odd);
  }
  __device__ __forceinline__ unsigned free_right(unsigned odd) const {
    return shared + Smem::kBarriersAt + 8 * (2 * kPanels + 2 + odd);
  }

  // By one thread, before anybody uses them.
  __device__ __forceinline__ void init() const {
    for (unsigned odd = 0; odd < 2; ++odd) {
      for (unsigned panel = 0; panel < kPanels; ++panel) mbarrier_init(full(odd, panel), 1);
      mbarrier_init(free_left(odd), 4);
      mbarrier_init(free_right(odd), 4);
    }
    fence_mbarrier_init();
  }
};

// Copies the even or the odd blocks of a part: a warp, each lane a run of rows of one page. The
// half that is free first is copied first. A page that is not there is outside of the map, which
// reads as zeros.
template <class Config>
__device__ __forceinline__ void copy_keys(const AttentionDecodeWarpgroupsParams& p,
                                          const DecodeBuffers<Config>& buffers,
                                          const QueryTile& tile, const PageTable& table,
                                          const DecodePart& part, unsigned odd) {
  using Smem = AttentionDecodeWarpgroupsSmem<Config>;
  const int lane = static_cast<int>(threadIdx.x % 32), rows = p.box_rows;
  const bool has_run = lane * rows < 64;
  unsigned phase = 1;
  for (int block = part.last - 1 - static_cast<int>(odd); block >= part.first; block -= 2) {
    const int key = block * 64 + lane * rows;
    KeyAddress address = {-1, 0};
    if (has_run && key < tile.keys) address = table.address(key, table.entry(key));
    const auto copy = [&](unsigned free, int begin, int end) {
      mbarrier_wait(free, phase);
      if (lane == 0) {
        for (int panel = begin; panel < end; ++panel) {
          mbarrier_arrive_expect(buffers.full(odd, panel), Smem::kPanel);
        }
      }
      __syncwarp();
      if (!has_run) return;
      for (int panel = begin; panel < end; ++panel) {
        copy_box(buffers.keys(odd) + panel * Smem::kPanel + lane * rows * 128, p.k,
                 buffers.full(odd, panel), panel * 64, address.row, tile.head, address.page);
      }
    };
    if (odd == 0) {
      copy(buffers.free_left(odd), 0, Smem::kHalf);
      copy(buffers.free_right(odd), Smem::kHalf, Smem::kPanels);
    } else {
      copy(buffers.free_right(odd), Smem::kHalf, Smem::kPanels);
      copy(buffers.free_left(odd), 0, Smem::kHalf);
    }
    phase ^= 1;
  }
}

}  // namespace lathe
