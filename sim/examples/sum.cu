// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// out[block] = the sum of 256 neighbouring elements of `in`. In the kernel `sum` a barrier is missing.
// sum.ptx is what nvcc makes of this file: nvcc -ptx -lineinfo -arch=sm_80 sum.cu
template <bool kFixed>
__device__ void sum_of_block(const float* in, float* out) {
  __shared__ float part[256];
  const unsigned t = threadIdx.x;
  part[t] = in[blockIdx.x * 256 + t];
  if (kFixed) __syncthreads();
#pragma unroll 1
  for (unsigned half = 128; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = part[0];
}

extern "C" __global__ void sum(const float* in, float* out) { sum_of_block<false>(in, out); }
extern "C" __global__ void sum_fixed(const float* in, float* out) { sum_of_block<true>(in, out); }
