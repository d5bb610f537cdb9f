// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs one kernel of the ladder of products in github.com/pranjalssh/fast.cu by its own host code:
//
//   nvcc -DKERNEL=5 -DSOURCE='"examples/matmul/matmul_5.cuh"' fast_matmul.cu; a.out SIZE
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda/barrier>
#include <vector>

#include "timed.cuh"

// Names that the ladder takes from the file that includes it.
typedef __nv_bfloat16 bf16;
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))

void cuda_check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "fast_matmul: %s\n", cudaGetErrorString(result));
  std::exit(1);
}
#define cudaCheck(call) cuda_check(call)

#include SOURCE

#define RUN_OF(kernel) runKernel##kernel
#define RUN(kernel) RUN_OF(kernel)

int main(int count, char** words) {
  const int size = count == 2 ? std::atoi(words[1]) : 0;
  if (size <= 0) return 2;
  bf16* matrices[3];
  for (bf16*& matrix : matrices) cudaCheck(cudaMalloc(&matrix, sizeof(bf16) * size_t(size) * size));
  for (int k = 0; k < 2; ++k) fill_normally<bf16>(matrices[k], size_t(size) * size, k);
  once_or_timed([] {}, [&] {
#if KERNEL < 3
    RUN(KERNEL)(size, size, size, matrices[0], matrices[1], matrices[2]);
#else
    RUN(KERNEL)(size, size, size, matrices[0], matrices[1], matrices[2], nullptr);
#endif
  });
  cudaCheck(cudaGetLastError());
  cudaCheck(cudaDeviceSynchronize());
  return 0;
}
