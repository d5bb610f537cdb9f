// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A chunk of 64 tokens in the backward of KDA: where it lies, what is in shared memory, and who
// owns what. Warp 4 c + b owns the 16 tokens of block b and 32 of the 64 columns of K that are
// worked on at a time; lane 4 g + t holds, of tokens g and g + 8, columns 8 n + 2 t and the next, n
// from 0 to 3: the layout of accumulators of mma.sync.
#pragma once
#include "kda/scan.cuh"

namespace lathe {

constexpr int kKdaColumns = 64;

template <class Config>
struct KdaBackwardSmem {
  using Tile = KdaTile<64, 64>;
  // While V is gone through: 64 columns of do, y, vn, and those rows of h and dh.
  static constexpr int kDo = 0, kY = kDo + Tile::kBytes, kVn = kY + Tile::kBytes;
  static constexpr int kH = kVn + Tile::kBytes, kDh = kH + Tile::kBytes;
  // After that, in their place: rows of keys and queries as columns and as rows of a pair.
  static constexpr int kKg = 0, kQg = kKg + Tile::kBytes, kKe = kQg + Tile::kBytes;
  // do vn^T and y vn^T, the ten blocks on and below the diagonal of each, 16-bit.
  static constexpr int kOutScores = 5 * Tile::kBytes;
  static constexpr int kValueScores = kOutScores + 10 * KdaSquare::kBytes;
  static constexpr int kDiagonal = kValueScores + 10 * KdaSquare::kBytes;  // do . vn, float32 [64]
  static constexpr int kDecay = kDiagonal + 256;                           // [4 blocks][64 columns]
  static constexpr int kTotals = kDecay + 1024;       // [4][64]: of D in a block
  static constexpr int kKeyDots = kTotals + 1024;     // [4][64]: of k with vn dh^T
  static constexpr int kStateDots = kKeyDots + 1024;  // [8][64]: of h with dh
  static constexpr int kBeta = kStateDots + 2048;     // [64]
  static constexpr int kNorms = kBeta + 256;          // [2: q, k][64]
  static constexpr int kRowSums = kNorms + 512;       // [2 column halves][3][64]
  static constexpr int kValueDots = kRowSums + 1536;  // y . v, [64]
  static constexpr int kBiasSums = kValueDots + 256;  // [4][64]: of the gate's argument
  static constexpr int kRateSums = kBiasSums + 1024;  // [8 warps]
  // dq and dk of a pass, where they have to wait for more: for other heads of the group, or for the
  // norm of whole rows. Each thread's own. Without a group the last pass's may replace the tiles.
  static constexpr bool kKeep = Config::kGrouped || Config::kL2Norm;
  static constexpr int kPasses = Config::kWidth / kKdaColumns;
  static constexpr int kKept = kKeep ? kPasses - (Config::kGrouped ? 0 : 1) : 0;
  static constexpr int kKeptBytes = 2 * 16 * 4 * 256;
  static constexpr int kStash = (kRateSums + 32 + 1023) / 1024 * 1024;
  static constexpr int kBytes = kStash + kKept * kKeptBytes;
};

__device__ __forceinline__ int lower_square(int row, int column) {
  return (row * (row + 1) / 2 + column) * KdaSquare::kBytes;
}

// Where a thread block works: a chunk of a sequence.
struct KdaChunkPlace {
  int sequence;
  int first, count;      // the chunk's first token and the sequence's tokens
  long long row, start;  // of the batch; the sequence's first token in it
  int slot;
};

// `slot` is the chunk's; of packed sequences the one that holds it is found by halving. A slot that
// is idle has first >= count.
template <class Config>
__device__ __forceinline__ KdaChunkPlace kda_chunk_place(const KdaInputs& in, int slot) {
  KdaChunkPlace place;
  place.slot = slot;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::Offset;
    const auto base = [&](int n) {
      return offset_at<Offset>(in.cu_seqlens, n, in.tokens) / kKdaChunk + n;
    };
    int low = 0, high = in.sequences;  // base(low) <= slot < base(high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (base(middle) <= slot ? low : high) = middle;
    }
    const int start = offset_at<Offset>(in.cu_seqlens, low, in.tokens);
    const int end = offset_at<Offset>(in.cu_seqlens, low + 1, in.tokens);
    place.sequence = low, place.row = 0, place.start = start;
    place.count = maximum(end - start, 0);
    place.first = (slot - base(low)) * kKdaChunk;
  } else {
    const int chunks = ceil_div(in.tokens, kKdaChunk);
    place.sequence = slot / chunks, place.row = place.sequence, place.start = 0;
    place.count = in.tokens;
    place.first = slot % chunks * kKdaChunk;
  }
  return place;
}

// Two neighbours of a row, 0 where there are none.
template <class Element>
__device__ __forceinline__ void load_pair(const Element* at, bool there, float (&to)[2]) {
  Words<2 * sizeof(Element)> raw = {};
  if (there) load_global(at, raw);
#pragma unroll
  for (int i = 0; i < 2; ++i) to[i] = to_float(element_of<Element>(raw, i));
}

template <class Element>
__device__ __forceinline__ unsigned load_word(const Element* at, bool there) {
  Words<4> raw = {};
  if (there) load_global(at, raw);
  return raw.word[0];
}

// A row's accumulators of four tiles, columns 8n + 2t and the next, into memory: 8 bytes a lane,
// rounded to Element. Columns at and beyond `columns` are not there.
template <class Element>
__device__ __forceinline__ void store_row(Element* row, const float (&x)[8], int column,
                                          int columns, bool there) {
  const int t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int n = 0; n < 4; n += 2) {
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
      for (int m = n; m < n + 2; ++m) {
        const int at = column + 8 * m + 2 * t;
        if (there && at < columns) {
          store_global(row + at,
                       Words<8>{{bit_cast<unsigned>(x[2 * m]), bit_cast<unsigned>(x[2 * m + 1])}});
        }
      }
    } else {
      const unsigned low = pack_pair(x[2 * n], x[2 * n + 1], Element{});
      const unsigned high = pack_pair(x[2 * n + 2], x[2 * n + 3], Element{});
      const unsigned other = __shfl_xor_sync(0xffffffffu, t & 1 ? low : high, 1);
      const Words<8> four = t & 1 ? Words<8>{{other, high}} : Words<8>{{low, other}};
      const int at = column + 8 * n + (t & 1) * 8 + (t & 2) * 2;
      if (there && at < columns) store_global(row + at, four);
    }
  }
}

}  // namespace lathe
