// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The rows of a paged cache come to shared memory block by block, through a ring of kStages stages:
// what attention_decode and attention_decode_latent share. Stage i % kStages holds block
// last - 1 - i, since blocks are walked right to left.
#pragma once
#include "attention/decode/narrow_rows.cuh"
#include "attention/decode/rotary.cuh"
#include "attention/decode/rows.cuh"
#include "attention/scores.cuh"

namespace lathe {

// `Smem` says where things lie: the tile of q first; at kQ the blocks as tiles, each kStage bytes,
// or of a cache in 8 bits one tile, with the stages of raw rows at kStagesAt; at kRowsAt a list of
// kTileN Rows a stage, at kSlotsAt one of their numbers in the cache, at kScalesAt kScaleLists of
// scales. Row::of(p, address) gives the offsets of a row, in elements from the head's first; they
// are negative where the row is absent.
template <class Config, class Smem>
struct DecodeBlocks {
  using Element = typename Config::Element;
  using Pieces = DecodeConfig<Config>;
  using Row = typename Smem::Row;
  static constexpr int kTileM = Config::kTileM, kTileN = Config::kTileN;
  static constexpr int kStages = Config::kStages;
  static_assert(kStages >= 2 && kTileN <= Config::kThreads, "a row for a thread");

  const AttentionDecodeParams& decode;
  const AttentionForwardParams& p;
  const QueryTile& tile;
  const PageTable& table;
  char* const shared;

  __device__ __forceinline__ Row* rows(int stage) const {
    return reinterpret_cast<Row*>(shared + Smem::kRowsAt) + stage * kTileN;
  }
  __device__ __forceinline__ int* slots(int stage) const {
    return reinterpret_cast<int*>(shared + Smem::kSlotsAt) + stage * kTileN;
  }
  __device__ __forceinline__ float* scales(int stage) const {
    return reinterpret_cast<float*>(shared + Smem::kScalesAt) + Smem::kScaleLists * stage * kTileN;
  }
  // The tile of a stage's block; a cache in 8 bits has one for all.
  __device__ __forceinline__ unsigned block_at(int stage) const {
    return shared_address(shared) + Smem::kQ + (Smem::kNarrow ? 0 : stage * Smem::kStage);
  }
  __device__ __forceinline__ unsigned raw_at(int stage) const {
    return shared_address(shared) + Smem::kStagesAt + stage * Smem::kStage;
  }

  // The table's entry of the thread's own key of a block; -1 where there is none.
  __device__ __forceinline__ int page_entry(int block, int first) const {
    const int key = block * kTileN + static_cast<int>(threadIdx.x);
    const bool wanted = block >= first && threadIdx.x < kTileN && key < tile.keys;
    return wanted && key >= DecodeView<Config>{decode, tile}.first() ? table.entry(key) : -1;
  }
  __device__ __forceinline__ void list_row(int stage, int block, int entry) const {
    if (threadIdx.x >= kTileN) return;
    const KeyAddress address = table.address(block * kTileN + static_cast<int>(threadIdx.x), entry);
    rows(stage)[threadIdx.x] = Row::of(p, address);
    if constexpr (NarrowOf<Config>::kValue == kRowScales) {
      slots(stage)[threadIdx.x] =
          address.page >= 0 ? address.page * decode.pages.page + address.row : -1;
    }
  }

  __device__ __forceinline__ void start_q() const {
    const Element* q = static_cast<const Element*>(p.q) +
                       decode_offset<Config>(tile, p.q_batch_stride, p.q_token_stride);
    const long long count = static_cast<long long>(tile.rows) * tile.group;
    copy_tile<kTileM, Config::kWidth, Config::kThreads, kAlignmentOf<Config, Element>>(
        shared_address(shared), q, saturate(count - tile.first), p.head_dim,
        [&](int r) { return query_offset<Pieces>(tile, r, p.q_token_stride, p.q_head_stride); });
    if constexpr (IsRotary<Config>::kValue) rotate_queries<Config>(decode, tile, table, shared);
  }

  // Walks the blocks [first, last). Their rows are looked up two steps ahead, once by a load into a
  // register and once by a store to the list, so that no copy waits for the table. copy(stage)
  // starts the copies of the block whose rows are listed; start() follows when the first of them
  // are on their way, with those of q; widen(stage) makes the tile of a block in 8 bits; with it,
  // visit(block, stage) computes.
  template <class Copy, class Start, class Widen, class Visit>
  __device__ __forceinline__ void walk(int first, int last, const Copy& copy, const Start& start,
                                       const Widen& widen, const Visit& visit) const {
    int entries[kStages];
#pragma unroll
    for (int i = 0; i < kStages; ++i) entries[i] = page_entry(last - 1 - i, first);
#pragma unroll
    for (int i = 0; i < kStages; ++i) list_row(i, last - 1 - i, entries[i]);
    int entry = page_entry(last - 1 - kStages, first);
    __syncthreads();  // the lists are there for all
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) {
      if (last - 1 - i >= first) copy(i);
      copy_async_commit();
    }
    start();
    int stage = 0, behind = kStages - 1;  // of the block at hand, and of the last one
#pragma unroll 1
    for (int block = last - 1; block >= first; --block) {
      copy_async_wait<kStages - 2>();
      __syncthreads();  // the block is there for all; all have left the stage that is refilled now
      if constexpr (Smem::kNarrow) widen(stage);
      if (block - (kStages - 1) >= first) copy(behind);
      copy_async_commit();
      if constexpr (Smem::kNarrow) __syncthreads();  // the tile is there for all
      list_row(stage, block - kStages, entry);       // read last before this barrier
      entry = page_entry(block - kStages - 1, first);
      visit(block, stage);
      behind = stage;
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    copy_async_wait<0>();
  }
};

// Blocks that the window cuts take the mask, the others none. `key`: of the warp's first column.
template <class Config, class Walk, class Positions, int kRowBlocks, int kKeyTiles>
__device__ __forceinline__ void modify_block(float (&s)[kRowBlocks][kKeyTiles][4],
                                             const ScoreUnits<DecodeConfig<Config>>& units,
                                             const DecodeRows<Config>& rows, const QueryTile& tile,
                                             const Walk& visits, int block, int key,
                                             const Positions& positions) {
  using Pieces = DecodeConfig<Config>;
  if (block >= visits.right || block < visits.left) {
    modify_scores<Pieces, AttentionMask::both>(s, units, rows, tile, visits.window, key, positions);
  } else {
    modify_scores<Pieces, AttentionMask::none>(s, units, rows, tile, visits.window, key, positions);
  }
}

}  // namespace lathe
