// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_backward: gradients of softmax attention over the keys that lists name, the scores
// computed once more.
//
//   p_j = e^(x_j - lse)   dp_j = dout . v_j   dx_j = p_j (dp_j - delta)   delta = dout . out
//   dq  = scale sum_j dx_j k_j     of the row alone
//   dk_j += scale sum_h dx_j q     over the heads of the block by the product,
//   dv_j += sum_h p_j dout         over blocks by float32 sums in memory
//
// A block owns a row and kTileM heads of one key head, as in the forward, and walks over the same
// tiles of kTileN keys. kGroups warps share 16 heads: in the products over columns (scores and dp)
// each has a part of the columns; of their sums each then takes a part of the keys, makes p and dx
// of it, and all meet in shared memory. In the other three products all warps share the columns.
// (Method: Dao et al., FlashAttention-2, 2023, with the roles of rows and keys exchanged.)
#pragma once
#include "sparse/backward_scores.cuh"

namespace lathe {

template <class Config>
struct SparseBackward : SparseScores<Config> {
  using Block = SparseScores<Config>;
  using typename Block::Element;
  using typename Block::Scores;
  using typename Block::Share;
  using typename Block::Smem;
  using SparseScores<Config>::SparseScores;
  using Block::at, Block::in, Block::kHeadBlocks, Block::kKeyBlocks, Block::kStages;
  using Block::copy_keys, Block::group_barrier, Block::k_tile, Block::list, Block::warp_tile;
  using Block::kTileM, Block::kTileN, Block::kWarps, Block::p, Block::shared;
  static constexpr int kChunks = 8 / kWarps;  // columns of a warp in each panel, by 8
  static constexpr int kPanels = Config::kWidth / 64, kValuePanels = Config::kValueWidth / 64;
  static constexpr int kWarpTiles = kPanels * kChunks;  // of dq, 8 columns each
  static_assert(kChunks * kWarps == 8, "four warps or eight");
  using DqAccumulators = float[kHeadBlocks][kWarpTiles][4];
  // Blocks of 16 keys whose gradients are made at once: as many as leave room for dq.
  static constexpr int kOperands = kHeadBlocks * (Config::kValuesInKeys ? 8 : 4);
  static constexpr int kAtOnce = kOperands * kKeyBlocks <= 32 ? kKeyBlocks
                                 : kOperands < 32             ? 32 / kOperands
                                                              : 1;
  using Operands = Fragment<Element>[kAtOnce][kHeadBlocks];

  __device__ __forceinline__ void add_queries(int tile, DqAccumulators& dq) const;
  __device__ __forceinline__ void load_transposed(int from, int first, Operands& a) const;
  __device__ __forceinline__ float* key_row(int tile, int row, bool values) const;
  template <bool kWhole>
  __device__ __forceinline__ void put_keys(int tile, int first, int count) const;
  __device__ __forceinline__ void put_tile(int tile, int count) const;
  __device__ __forceinline__ void note_keys(int tile, int count) const;
  __device__ __forceinline__ void store(const DqAccumulators& dq) const;
  __device__ __forceinline__ void run() const;
};

// dq += dx k.
template <class Config>
__device__ __forceinline__ void SparseBackward<Config>::add_queries(int tile,
                                                                    DqAccumulators& dq) const {
  const int lane = warp_tile().lane;
  const ColumnReader<kTileN, kChunks> keys(k_tile(tile), warp_tile().warp, lane);
  const auto reader = read_rows_first<kTileM, kTileN>(shared + Smem::kGradientsAt, lane);
  Fragment<Element> dx[kHeadBlocks][kKeyBlocks];
#pragma unroll
  for (int m = 0; m < kHeadBlocks; ++m) {
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) load_fragment(dx[m][j], reader, m, j);
  }
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    unsigned words[kKeyBlocks][kChunks][2];
    keys.load(panel, words);
#pragma unroll
    for (int j = 0; j < kKeyBlocks; ++j) {
#pragma unroll
      for (int m = 0; m < kHeadBlocks; ++m) {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          multiply_add(dq[m][panel * kChunks + c], dx[m][j].word[0], words[j][c][0], words[j][c][1],
                       Element{});
        }
      }
    }
  }
}

// Keys by heads, out of a tile of heads by keys, from block `first` of 16 keys on.
template <class Config>
__device__ __forceinline__ void SparseBackward<Config>::load_transposed(int from, int first,
                                                                        Operands& a) const {
  const auto reader = read_columns_first<kTileM, kTileN>(shared + from, warp_tile().lane);
#pragma unroll
  for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
    for (int m = 0; m < kHeadBlocks; ++m) load_fragment_transposed(a[j][m], reader, m, first + j);
  }
}

// Returns the first element of the gradient of key `row` of a tile, or of its value's.
template <class Config>
__device__ __forceinline__ float* SparseBackward<Config>::key_row(int tile, int row,
                                                                  bool values) const {
  const int entry = tile * kTileN + row, width = in.head_dim + in.rope_dim;
  if constexpr (Config::kDeterministic) {
    // Slots of the rows of the launch, key heads and tiles of heads in the order of the blocks.
    const long long slot = static_cast<long long>(blockIdx.x) * p.entries + entry;
    return static_cast<float*>(p.slots) +
           slot * (width + (Config::kValuesInKeys ? 0 : in.value_dim)) + (values ? width : 0);
  } else {
    const long long key = static_cast<long long>(warp_uniform(at.batch)) * in.seq_k + at.key_row +
                          listed_key<kTileN>(list(), entry);
    return static_cast<float*>(values ? p.dv : p.dk) +
           (key * in.kv_heads + at.kv_head) * (values ? in.value_dim : width);
  }
}

// dk = scale dx^T q and dv = p^T dout of some keys of a tile, or with values in keys their sum, on
// their way. kWhole: all of them are there, and all columns.
template <class Config>
template <bool kWhole>
__device__ __forceinline__ void SparseBackward<Config>::put_keys(int tile, int first,
                                                                 int count) const {
  using Rows = KeyRows<kAtOnce, Config::kDeterministic>;
  const int lane = warp_tile().lane, warp = warp_tile().warp;
  const int warp_column = 8 * kChunks * warp, width = in.head_dim + in.rope_dim;
  const ColumnReader<kTileM, kChunks> q(shared, warp, lane);
  const ColumnReader<kTileM, kChunks> dout(shared + Smem::kDoutAt, warp, lane);
  const int keys = count - 16 * first;
  const auto rows_of = [&](bool values) {
    return Rows(lane, keys,
                [&](int row) { return key_row(tile, 16 * first + row, values) + warp_column; });
  };
  // The warp's columns of a panel, those below `end` from its first on.
  const auto put = [&](const Rows& rows, int panel, int end,
                       const float(&sums)[kAtOnce][kChunks][4]) {
#pragma unroll
    for (int i = 0; i < kAtOnce * kChunks; ++i) {
      const int column = 64 * panel + 8 * (i % kChunks);
      if (kWhole || uniform(column < end)) {
        rows.template put<kWhole>(lane, i / kChunks, column, sums[i / kChunks][i % kChunks]);
      }
    }
  };
  if (p.dk != nullptr) {
    const Rows rows = rows_of(false);
    Operands dx, p_words;
    load_transposed(Smem::kGradientsAt, first, dx);
    if constexpr (Config::kValuesInKeys) load_transposed(Smem::kPAt, first, p_words);
#pragma unroll(kWhole ? 3 : 1)
    for (int panel = 0; panel < kPanels; ++panel) {
      float sums[kAtOnce][kChunks][4] = {};
      unsigned words[kHeadBlocks][kChunks][2];
      q.load(panel, words);
      multiply_columns<Element>(sums, dx, words);
#pragma unroll
      for (int i = 0; i < kAtOnce * kChunks * 4; ++i) {
        sums[i / 4 / kChunks][i / 4 % kChunks][i % 4] *= in.scale;
      }
      if (Config::kValuesInKeys && panel < kValuePanels) {
        dout.load(panel, words);
        multiply_columns<Element>(sums, p_words, words);
      }
      put(rows, panel, width - warp_column, sums);
    }
  }
  if (Config::kValuesInKeys || p.dv == nullptr) return;
  const Rows rows = rows_of(true);
  Operands p_words;
  load_transposed(Smem::kPAt, first, p_words);
#pragma unroll(kWhole ? 3 : 1)
  for (int panel = 0; panel < kValuePanels; ++panel) {
    float sums[kAtOnce][kChunks][4] = {};
    unsigned words[kHeadBlocks][kChunks][2];
    dout.load(panel, words);
    multiply_columns<Element>(sums, p_words, words);
    put(rows, panel, in.value_dim - warp_column, sums);
  }
}

template <class Config>
__device__ __forceinline__ void SparseBackward<Config>::put_tile(int tile, int count) const {
  const bool columns = in.head_dim + in.rope_dim == Config::kWidth &&
                       (Config::kValuesInKeys || in.value_dim == Config::kValueWidth);
  const auto put = [&](int first) {
    if (uniform(columns && count - 16 * first >= 16 * kAtOnce)) {
      put_keys<true>(tile, first, count);
    } else {
      put_keys<false>(tile, first, count);
    }
  };
  if constexpr (kAtOnce == kKeyBlocks) {
    put(0);
  } else {
#pragma unroll 1
    for (int first = 0; uniform(16 * first < count); first += kAtOnce) put(first);
  }
}

// Notes for a chunk which key each entry names, and how many of the row name it. Blocks of the same
// row and key head have the same list; the first notes it.
template <class Config>
__device__ __forceinline__ void SparseBackward<Config>::note_keys(int tile, int count) const {
  const unsigned list_of = blockIdx.x / in.head_tiles;
  const int row = static_cast<int>(at.row) - p.first_row;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Config::kThreads) {
    const int entry = tile * kTileN + i;
    const long long key = static_cast<long long>(at.batch) * in.seq_k + at.key_row +
                          listed_key<kTileN>(list(), entry);
    const int key_and_head = static_cast<int>(key * in.kv_heads + at.kv_head);
    store_element(static_cast<int*>(p.listed) + static_cast<long long>(list_of) * p.entries + entry,
                  key_and_head);
    int* counted =
        static_cast<int*>(p.counts) + static_cast<long long>(key_and_head) * p.chunk + row;
    asm volatile("red.global.add.s32 [%0], 1;" ::"l"(counted) : "memory");
  }
  if (threadIdx.x == 0) {  // the last tile leaves the number of all
    store_element(static_cast<int*>(p.lengths) + list_of, tile * kTileN + count);
  }
}

template <class Config>
__device__ __forceinline__ void SparseBackward<Config>::store(const DqAccumulators& dq) const {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4, head = first_head_of(in, at);
  Element* to = static_cast<Element*>(p.dq) + at.offset(p.dq_batch_stride, p.dq_token_stride) +
                head * p.dq_head_stride;
  Element* rope = static_cast<Element*>(p.dq_rope) +
                  at.offset(p.dq_rope_batch_stride, p.dq_rope_token_stride) +
                  head * p.dq_rope_head_stride;
  // Returns the address of column `column` of a head; null: it goes nowhere.
  const auto to_column = [&](int tile_row, int column) -> Element* {
    if (tile_row >= at.heads || column >= in.head_dim + in.rope_dim) return nullptr;
    if (column < in.head_dim) {
      return p.dq == nullptr ? nullptr : to + tile_row * p.dq_head_stride + column;
    }
    return p.dq_rope == nullptr ? nullptr
                                : rope + tile_row * p.dq_rope_head_stride + column - in.head_dim;
  };
  const auto column_of = [&](int tile) {
    return 64 * (tile / kChunks) + 8 * (kChunks * warp + tile % kChunks);
  };
#pragma unroll
  for (int i = 0; i < 2 * kHeadBlocks; ++i) {
    const int half = i % 2, tile_row = 8 * i + g;
    const auto word = [&](int n) {
      const float(&sum)[4] = dq[i / 2][n];
      return pack_pair(sum[2 * half] * in.scale, sum[2 * half + 1] * in.scale, Element{});
    };
#pragma unroll
    for (int n = 0; n < kWarpTiles / 4 * 4; n += 4) {
      const Words<16> columns = turn_in_quad({word(n), word(n + 1), word(n + 2), word(n + 3)});
      Element* at_columns = to_column(tile_row, column_of(n + t));
      if (at_columns != nullptr) store_global(at_columns, columns);
    }
#pragma unroll
    for (int n = kWarpTiles / 4 * 4; n < kWarpTiles; ++n) {
      Element* at_columns = to_column(tile_row, column_of(n));
      if (at_columns != nullptr) store_global(at_columns + 2 * t, Words<4>{{word(n)}});
    }
  }
}

template <class Config>
__device__ __forceinline__ void SparseBackward<Config>::run() const {
  const int warp = static_cast<int>(threadIdx.x / 32);
  KeyListMaker<kTileN> maker(in, at, list(), 0, 1);
  if (warp == 0) {
#pragma unroll
    for (int tile = 0; tile < kStages; ++tile) maker.make(tile);
  }
  __syncthreads();  // the keys of the first tiles are named
  int count = listed_keys<kTileN>(list(), 0);
  DqAccumulators dq = {};
  if (uniform(count > 0)) {
    this->note_rows();
    copy_query_heads<Config>(in, at, shared);
    copy_value_heads<Config>(in, at, p.dout, p.dout_batch_stride, p.dout_token_stride,
                             p.dout_head_stride, shared + Smem::kDoutAt);
    copy_keys(0, count);
  } else if (Config::kDeterministic && at.first_head == 0 && p.listed != nullptr) {
    note_keys(0, 0);
  }
  copy_async_commit();
#pragma unroll 1
  for (int tile = 0; uniform(count > 0); ++tile) {
    int more = 0;
    copy_async_wait<0>();
    __syncthreads();  // the tile is there for all; all have left p, dx and the other tile
    if constexpr (kStages == 2) {
      more = listed_keys<kTileN>(list(), tile + 1);
      if (uniform(more > 0)) copy_keys(tile + 1, more);
      copy_async_commit();
    }
    if (uniform(warp == 0)) maker.make(tile + kStages);

    {
      Scores s = {}, dp = {};
      Share shared_s, shared_dp;
      this->multiply_scores(tile, s, dp);
      this->share_out(s, shared_s);
      group_barrier();  // all have read their sums of scores
      this->share_out(dp, shared_dp);
      this->make_p_and_ds(shared_s, shared_dp, count);
    }
    __syncthreads();  // p and dx are there for all, and the list goes on
    add_queries(tile, dq);
    if constexpr (kStages == 1) {
      __syncthreads();  // all have left the tile
      more = listed_keys<kTileN>(list(), tile + 1);
      if (uniform(more > 0)) copy_keys(tile + 1, more);
      copy_async_commit();
    }
    put_tile(tile, count);
    if constexpr (Config::kDeterministic) {
      if (at.first_head == 0 && p.listed != nullptr) note_keys(tile, count);
    }
    count = more;
  }
  store(dq);
}

template <class Config>
__device__ void sparse_backward(const SparseBackwardParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  SparseBackward<Config>(p, shared_address(shared)).run();
}

}  // namespace lathe
