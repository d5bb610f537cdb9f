// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit elements in shared memory for the matrix instructions of sm_80: filled by
// asynchronous copies, in chunks of 16 bytes whose order in a row follows from the row, so that
// neither the copies nor ldmatrix have bank conflicts.
//
//   using Tile = lathe::Tile<lathe::bf16, 16, 32>;  // 16 rows of 32 columns
//   __shared__ __align__(128) char shared[2 * Tile::kBytes];
//   const Tile a{lathe::shared_address(shared)}, b{a.address + Tile::kBytes};
//   a.template copy<32>(p.a, p.K, p.M, p.K), b.template copy<32>(p.b, p.K, p.N, p.K);
//   lathe::copy_async_commit(), lathe::copy_async_wait<0>();
//   __syncthreads();
//   float c[2][4] = {};                             // 16 x 16 of A B^T, by one warp
//   for (int k = 0; k < 32; k += 16) {
//     unsigned x[4], y[4];
//     a.fragment_a(0, k, x), b.fragment_b(0, k, y);
//     for (int n = 0; n < 2; ++n) {                 // columns 8 n to 8 n + 7
//       lathe::multiply_add(c[n], x, y[2 * n], y[2 * n + 1], lathe::bf16());
//     }
//   }
//   for (int i = 0; i < 8; ++i) {                   // of which a lane has two of each half
//     const int row = threadIdx.x / 4 + i / 2 % 2 * 8;
//     const int column = i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
//     if (row < p.M && column < p.N) p.c[row * p.N + column] = c[i / 4][i % 4];
//   }
#pragma once

#include "common/async_copy.cuh"
#include "common/mma.cuh"

namespace lathe {

template <class Element, int kRows, int kColumns>
struct Tile {
  static_assert(sizeof(Element) == 2, "the matrix instructions take 16-bit elements");
  static constexpr int kChunks = kColumns / 8;
  static_assert(kChunks == 4 || kChunks % 8 == 0, "rows of 64 bytes, or of whole 128");
  static constexpr int kBytes = kRows * kColumns * 2;

  unsigned address;  // of shared memory, a multiple of 128

  // Returns where a chunk of eight columns lies.
  __device__ __forceinline__ unsigned at(int row, int chunk) const {
    const int turn = kChunks == 4 ? row / 2 % 4 : row % 8;
    return address + static_cast<unsigned>((row * kChunks + (chunk ^ turn)) * 16);
  }

  // Begins to copy rows that lie `stride` elements apart. Only the first `rows` and `columns`, a
  // multiple of 8, are read; the others are zeros. All threads of the block call it.
  template <int kThreads>
  __device__ __forceinline__ void copy(const Element* from, long long stride, long long rows,
                                       long long columns) const {
    static_assert(kRows * kChunks % kThreads == 0, "each thread copies as many chunks");
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
      const int index = i * kThreads + static_cast<int>(threadIdx.x);
      const int row = index / kChunks, chunk = index % kChunks;
      const bool wanted = row < rows && 8 * chunk < columns;
      copy_async(at(row, chunk), wanted ? from + row * stride + 8 * chunk : from, wanted);
    }
  }

  // A: 16 rows and 16 columns.
  __device__ __forceinline__ void fragment_a(int row, int column, unsigned (&word)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrix(word, at(row + lane % 16, column / 8 + lane / 16));
  }
  // B, whose columns are 16 rows of the tile: words 0 and 1 are of the first eight, 2 and 3 of the
  // others.
  __device__ __forceinline__ void fragment_b(int row, int column, unsigned (&word)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrix(word, at(row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
  }
  // B, whose rows are 16 rows of the tile and whose columns are 16 columns of it.
  __device__ __forceinline__ void fragment_b_turned(int row, int column,
                                                    unsigned (&word)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    load_matrix_transposed(word, at(row + lane / 8 % 2 * 8 + lane % 8, column / 8 + lane / 16));
  }
};

}  // namespace lathe
