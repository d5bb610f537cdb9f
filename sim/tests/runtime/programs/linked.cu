// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Half of a program that nvcc -rdc=true links: its kernel uses what linked_part.cu defines.
#include "check.h"

extern __device__ int factor;
extern __device__ float scaled(float x);

__global__ void scale(float* x) { x[threadIdx.x] = scaled(threadIdx.x) + factor; }

int main() {
  float *x = nullptr, here[32];
  CHECK(cudaMalloc(&x, sizeof here));
  for (int value : {7, 3}) {
    CHECK(cudaMemcpyToSymbol(factor, &value, sizeof value));
    scale<<<1, 32>>>(x);
    CHECK(cudaMemcpy(here, x, sizeof here, cudaMemcpyDeviceToHost));
    compare("scaled", here[31], 31 * value + value);
  }
  CHECK(cudaFree(x));
}
