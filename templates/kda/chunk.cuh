// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A chunk of 64 tokens in the backward of KDA: where it lies, what is in shared memory, and who
// owns what. Warp 4 c + b owns the 16 tokens of block b and the 16 columns of part c of those
// columns of K that are worked on at a time; lane 4 g + t holds, of tokens g and g + 8, columns
// 8 n + 2 t and the next, n being 0 and 1: the layout of accumulators of mma.sync.
#pragma once
#include "common/operand.cuh"
#include "kda/scan.cuh"

namespace lathe {

// Tiles of 16-bit elements in panels of 32 columns, 64-byte rows, one panel after another. 16-byte
// chunk c of row r is at chunk c ^ (r / 2 mod 4) of its row: eight rows at one chunk, which is what
// ldmatrix reads, and two whole rows, which is what a quarter of a warp writes, hit every bank
// once.
template <int kRows>
struct KdaPanels {
  static __device__ __forceinline__ int offset(int row, int chunk) {
    return (chunk >> 2) * (kRows * 64) + row * 64 + (((chunk ^ row >> 1) & 3) << 4);
  }
  // From the address of chunk 0 or 1 of a row to that of chunk `chunk` more, an even number.
  static __device__ __forceinline__ unsigned at(unsigned address, int chunk) {
    return (address ^ (chunk & 3) << 4) + (chunk >> 2) * (kRows * 64);
  }
};

template <class Config>
struct KdaBackwardSmem {
  static constexpr int kPlanes = Operand<typename Config::Element>::kPlanes;
  static constexpr int kParts = Config::kThreads / 128;
  static constexpr int kColumns = 16 * kParts;            // of K at a time
  static constexpr int kValues = kPlanes == 1 ? 64 : 32;  // of V at a time
  static constexpr int kPasses = (Config::kWidth + kColumns - 1) / kColumns;

  // Bytes of a plane: rows of do, y or vn; of h or dh; of keys or queries; a chunk's scores.
  static constexpr int kValuePlane = 64 * kValues * 2, kStatePlane = kValues * kColumns * 2;
  static constexpr int kKeyPlane = 64 * kColumns * 2, kScorePlane = 10 * KdaSquare::kBytes;
  // While V is gone through: columns of do, y, vn, and those rows of h and dh.
  static constexpr int kDo = 0, kY = kDo + kPlanes * kValuePlane, kVn = kY + kPlanes * kValuePlane;
  static constexpr int kH = kVn + kPlanes * kValuePlane, kDh = kH + kPlanes * kStatePlane;
  // After that, in their place: rows of keys and queries as columns and as rows of a pair.
  static constexpr int kKg = 0, kQg = kKg + kPlanes * kKeyPlane, kKe = kQg + kPlanes * kKeyPlane;
  // And the decays that a thread has, each its own, while it needs the registers for more.
  static constexpr int kAlpha = kKe + kPlanes * kKeyPlane;
  // do vn^T and y vn^T, the ten blocks on and below the diagonal of each.
  static constexpr int kOutScores = kDh + kPlanes * kStatePlane;
  static_assert(kAlpha + 8 * 4 * Config::kThreads <= kOutScores, "keys are laid over scores");
  static constexpr int kValueScores = kOutScores + kPlanes * kScorePlane;
  static constexpr int kRow = 4 * kColumns;                               // float32 sums of columns
  static constexpr int kDiagonal = kValueScores + kPlanes * kScorePlane;  // do . vn, [64]
  static constexpr int kDecay = kDiagonal + 256;                          // [4 blocks] of columns
  static constexpr int kThrough = kDecay + 4 * kRow;    // [6]: rows of later blocks, see chain_rows
  static constexpr int kKeyDots = kThrough + 6 * kRow;  // [4]: of k with vn dh^T
  static constexpr int kStateDots = kKeyDots + 4 * kRow;    // [16 + 1]: of h with dh, and the whole
  static constexpr int kBiasSums = kStateDots + 17 * kRow;  // [4]: of the gate's argument
  static constexpr int kRateSums = kBiasSums + 4 * kRow;    // [16 warps]
  static constexpr int kBeta = kRateSums + 64;              // [64]
  static constexpr int kNorms = kBeta + 256;                // [2: q, k][64]
  static constexpr int kNormDots = kNorms + 512;            // [parts][2: q . dq, k . dk][64]
  // y . v and k . r, kept from pass to pass for so many heads of a group, the last one for no more
  // than a pass.
  static constexpr int kHeads = Config::kGrouped ? 9 : 1;
  static constexpr int kValueDots = kNormDots + kParts * 512;  // [heads][64]
  static constexpr int kBetaDots = kValueDots + kHeads * 256;  // [heads][parts][64]
  static constexpr int kStash = kBetaDots + kHeads * kParts * 256;
  // dq and dk of a pass have to wait for the norm of whole rows. They do so in float32 where there
  // is room, each thread's own, or else where they will be in the end, rounded.
  static constexpr bool kStashed =
      Config::kL2Norm && kPlanes == 1 && Config::kWidth <= 128 && !Config::kGrouped;
  static constexpr int kStashBytes = 16 * 4 * Config::kThreads;
  static constexpr int kBytes =
      (kStash + (kStashed ? (kPasses - 1) * kStashBytes : 0) + 127) / 128 * 128;
};

__device__ __forceinline__ int lower_square(int row, int column) {
  return ((row * (row + 1) >> 1) + column) * KdaSquare::kBytes;
}

// A thread block works on one chunk of a sequence.
struct KdaChunkTile {
  int sequence;
  int first, count;  // the chunk's first token and the sequence's tokens
  int row, start;    // of the batch, 0 if packed; the sequence's first token in it, or 0
  int slot;
};

// The first chunk of run `number`, of `run` chunks each; of packed sequences the one that holds it
// is found by halving. A run that is idle has first >= count.
template <class Config>
__device__ __forceinline__ KdaChunkTile kda_chunk_tile(const KdaInputs& in, int number,
                                                       int run = 1) {
  KdaChunkTile tile;
  const int tokens = run * kKdaChunk;
  if constexpr (Config::kPacked) {
    using Offset = typename Config::Offset;
    const auto base = [&](int n) {
      return offset_at<Offset>(in.cu_seqlens, n, in.tokens) / tokens + n;
    };
    int low = 0, high = in.sequences;  // base(low) <= number < base(high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (base(middle) <= number ? low : high) = middle;
    }
    // From lane 0, so that the compiler knows them for one number each.
    low = __shfl_sync(0xffffffffu, low, 0);
    const int start = __shfl_sync(0xffffffffu, offset_at<Offset>(in.cu_seqlens, low, in.tokens), 0);
    const int behind = minimum(low + 1, in.sequences);  // none: every row is behind the last one
    const int end =
        __shfl_sync(0xffffffffu, offset_at<Offset>(in.cu_seqlens, behind, in.tokens), 0);
    tile.sequence = low, tile.row = 0, tile.start = start;
    tile.count = maximum(end - start, 0);
    tile.first = (number - start / tokens - low) * tokens;
    tile.slot = start / kKdaChunk + low + tile.first / kKdaChunk;
  } else {
    const int runs = ceil_div(in.tokens, tokens);
    tile.sequence = number / runs, tile.row = tile.sequence, tile.start = 0;
    tile.count = in.tokens;
    tile.first = number % runs * tokens;
    tile.slot = tile.row * ceil_div(in.tokens, kKdaChunk) + tile.first / kKdaChunk;
  }
  return tile;
}

// Four neighbouring values into the planes of a tile; `to` is their address in the first.
template <int kPlaneBytes>
__device__ __forceinline__ void store_four(unsigned to, const Words<16>& raw) {
  unsigned left[3], right[3];
  split_any_pair(bit_cast<float>(raw.word[0]), bit_cast<float>(raw.word[1]), left);
  split_any_pair(bit_cast<float>(raw.word[2]), bit_cast<float>(raw.word[3]), right);
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    store_shared(to + i * kPlaneBytes, bit_cast<float>(left[i]), bit_cast<float>(right[i]));
  }
}

// kRows by kColumns of a tensor into a tile, zeros outside its `rows` and `columns`. 16-bit ones
// are on their way when this returns; float32 ones are split here.
template <class Config, int kRows, int kColumns>
__device__ __forceinline__ void copy_tile(unsigned tile, const typename Config::Element* from,
                                          long long stride, int rows, int columns, int thread) {
  constexpr bool kSplit = Operand<typename Config::Element>::kPlanes == 3;
  constexpr int kEach = kSplit ? 4 : Config::kVectorBytes / 2, kPieces = 32 / kEach;
  constexpr int kCount = kRows * kColumns / kEach;
  static_assert(kCount % Config::kThreads == 0,
                "threads without a piece would part from the others");
#pragma unroll
  for (int turn = 0; turn < kCount / Config::kThreads; ++turn) {
    const unsigned i = turn * Config::kThreads + static_cast<unsigned>(thread);
    const int row = static_cast<int>(i / kPieces % kRows);
    const int column = static_cast<int>(i / (kPieces * kRows) * 32 + i % kPieces * kEach);
    const bool inside = row < rows && column < columns;
    const unsigned to = tile + KdaPanels<kRows>::offset(row, column >> 3) + (column & 7) * 2;
    const typename Config::Element* source = from + (inside ? row * stride + column : 0);
    if constexpr (kSplit) {
      Words<16> raw = {};
      if (inside) load_global(source, raw);
      store_four<kRows * kColumns * 2>(to, raw);
    } else {
      copy_async_some<Config::kVectorBytes>(to, source, inside);
    }
  }
}

// Two neighbours in the planes of a tile.
template <class Element, int kPlaneBytes>
__device__ __forceinline__ void store_planes(unsigned to, float first, float second) {
  unsigned plane[Operand<Element>::kPlanes];
  pack_planes<Element>(first, second, plane);
#pragma unroll
  for (int i = 0; i < Operand<Element>::kPlanes; ++i) store_shared(to + i * kPlaneBytes, plane[i]);
}
template <class Element, int kPlaneBytes>
__device__ __forceinline__ void load_pair_of_planes(unsigned from, float (&pair)[2]) {
  using Plane = typename Choose<Operand<Element>::kPlanes == 3, bf16, Element>::Type;
  pair[0] = pair[1] = 0.0f;
#pragma unroll
  for (int i = Operand<Element>::kPlanes - 1; i >= 0; --i) {
    float x[2];
    unpack_pair(bit_cast<unsigned>(load_shared(from + i * kPlaneBytes)), Plane{}, x[0], x[1]);
    pair[0] += x[0], pair[1] += x[1];
  }
}

// Two neighbours of a row, 0 where there are none.
template <class Element>
__device__ __forceinline__ void load_pair(const Element* at, bool there, float (&to)[2]) {
  Words<2 * sizeof(Element)> raw = {};
  if (there) load_global(at, raw);
#pragma unroll
  for (int i = 0; i < 2; ++i) to[i] = to_float(element_of<Element>(raw, i));
}

// How the lanes of a quad write 16 columns of a row: 8 bytes at a time. A 16-bit piece is four
// columns, which two lanes exchange; a float32 one is the lane's own two.
template <class Element>
struct KdaRowPieces {
  static constexpr int kPieces = sizeof(Element) == 4 ? 2 : 1, kEach = 4 / kPieces;

  static __device__ __forceinline__ int column(int piece) {
    const int t = static_cast<int>(threadIdx.x % 4);
    return sizeof(Element) == 4 ? 8 * piece + 2 * t : (t & 1) * 8 + (t & 2) * 2;
  }
  // x: columns 2t, 2t + 1, then 8 more.
  static __device__ __forceinline__ void make(const float (&x)[4], Words<8> (&piece)[kPieces]) {
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        piece[m] = {{bit_cast<unsigned>(x[2 * m]), bit_cast<unsigned>(x[2 * m + 1])}};
      }
    } else {
      const bool odd = (threadIdx.x & 1) != 0;
      const unsigned low = pack_pair(x[0], x[1], Element{});
      const unsigned high = pack_pair(x[2], x[3], Element{});
      const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);
      piece[0] = odd ? Words<8>{{other, high}} : Words<8>{{low, other}};
    }
  }
};

// Accumulators of a row's 16 columns from `column` on into memory. Columns at and beyond `columns`
// are not there.
template <class Element>
__device__ __forceinline__ void store_row(Element* row, const float (&x)[4], int column,
                                          int columns, bool there) {
  using Pieces = KdaRowPieces<Element>;
  Words<8> piece[Pieces::kPieces];
  Pieces::make(x, piece);
#pragma unroll
  for (int m = 0; m < Pieces::kPieces; ++m) {
    const int at = column + Pieces::column(m);
    if (there && at < columns) store_global(row + at, piece[m]);
  }
}

}  // namespace lathe
