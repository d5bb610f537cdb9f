// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// D = A * B' for sm_80: bfloat16 in, single precision out. A is m x k, B is n x k; m and n are
// multiples of 64, k of 32.
//
// Four warps multiply a tile of 64 x 64, 32 x 32 each. cp.async fills a ring of three stages. A row
// of a stage has 64 bytes, four units of 16; unit u of row r lies at u ^ (r / 2 % 4), so that eight
// rows of one column, which ldmatrix reads at once, fall into eight different groups of banks.
using u16 = unsigned short;
using u32 = unsigned int;

namespace {

constexpr u32 kStages = 3;
constexpr u32 kTile = 64, kTileK = 32;
constexpr u32 kRowBytes = kTileK * 2;
constexpr u32 kOperandBytes = kTile * kRowBytes, kStageBytes = 2 * kOperandBytes;

__device__ u32 place(u32 row, u32 unit) { return row * kRowBytes + (unit ^ row / 2 % 4) * 16; }

__device__ void copy(u32 to, const u16* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// 64 rows of 64 bytes: two units for each of 128 threads.
__device__ void copy_operand(u32 to, const u16* from, u32 k) {
#pragma unroll
  for (u32 half = 0; half < 2; ++half) {
    const u32 row = half * 32 + threadIdx.x / 4, unit = threadIdx.x % 4;
    copy(to + place(row, unit), from + (size_t)row * k + unit * 8);
  }
}

__device__ void read(u32 (&to)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

__device__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// One stage: 32 x 32 of this warp, 16 of K at a time.
__device__ void multiply_stage(float (&d)[2][4][4], u32 stage, u32 row, u32 column) {
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (u32 k = 0; k < kTileK / 16; ++k) {
    u32 a[2][4], b[2][4];
#pragma unroll
    for (u32 j = 0; j < 2; ++j) {
      // A: rows 0-7 and 8-15 of the first eight of K, then of the second.
      read(a[j], stage + place(row + j * 16 + lane % 16, k * 2 + lane / 16));
      // B: both halves of K for columns 0-7, then for 8-15.
      read(b[j], stage + kOperandBytes +
                     place(column + j * 16 + lane / 16 * 8 + lane % 8, k * 2 + lane / 8 % 2));
    }
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
#pragma unroll
      for (u32 j = 0; j < 4; ++j)
        multiply(d[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// Four lanes write 32 bytes of a row.
__device__ void write(const float (&d)[2][4][4], float* to, u32 n, u32 row, u32 column) {
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (u32 i = 0; i < 2; ++i) {
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
      float* at = to + (size_t)(row + i * 16 + lane / 4) * n + column + j * 8 + lane % 4 * 2;
      *(float2*)at = {d[i][j][0], d[i][j][1]};
      *(float2*)(at + 8 * (size_t)n) = {d[i][j][2], d[i][j][3]};
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128)
    gemm(const u16* a, const u16* b, float* d, u32 n, u32 k) {
  __shared__ __align__(128) unsigned char shared[kStages * kStageBytes];
  const u32 start = (u32)__cvta_generic_to_shared(shared);
  const u32 tile_m = blockIdx.x / (n / kTile), tile_n = blockIdx.x % (n / kTile);
  a += (size_t)tile_m * kTile * k;
  b += (size_t)tile_n * kTile * k;
  const u32 warp = threadIdx.x / 32, row = warp / 2 * 32, column = warp % 2 * 32;
  const u32 tiles = k / kTileK;
#pragma unroll
  for (u32 t = 0; t < kStages - 1; ++t) {
    copy_operand(start + t * kStageBytes, a + t * kTileK, k);
    copy_operand(start + t * kStageBytes + kOperandBytes, b + t * kTileK, k);
    commit();
  }
  float sums[2][4][4] = {};
  u32 stage = 0, next = kStages - 1;
#pragma unroll 1
  for (u32 t = 0; t < tiles; ++t) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    // Everybody's copies of this tile are there, and nobody reads the stage before it any more.
    __syncthreads();
    if (t + kStages - 1 < tiles) {
      const u32 to = start + next * kStageBytes, from = (t + kStages - 1) * kTileK;
      copy_operand(to, a + from, k);
      copy_operand(to + kOperandBytes, b + from, k);
    }
    commit();  // empty at the end, so that the count in wait_group holds
    multiply_stage(sums, start + stage * kStageBytes, row, column);
    stage = (stage + 1) % kStages;
    next = (next + 1) % kStages;
  }
  write(sums, d + (size_t)tile_m * kTile * n + tile_n * kTile, n, row, column);
}
