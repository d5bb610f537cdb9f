// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Programs of the CUDA runtime that lack something, and their mended twins: races CASE [mended].
#include <cuda_pipeline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRY(call)                                                     \
  do {                                                                \
    const cudaError_t error = (call);                                 \
    if (error != cudaSuccess) {                                       \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));  \
      exit(3);                                                        \
    }                                                                 \
  } while (0)

constexpr int kThreads = 128;

// Lacks a barrier between the threads that write shared memory and those that read it.
template <bool kMended>
__global__ void barrier(float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = threadIdx.x;
  if (kMended) __syncthreads();
  out[threadIdx.x] = values[(threadIdx.x + 64) % kThreads];
}

// Lacks the wait for an asynchronous copy.
template <bool kMended>
__global__ void copy(const float* in, float* out) {
  __shared__ float values[kThreads];
  __pipeline_memcpy_async(&values[threadIdx.x], &in[threadIdx.x], sizeof(float));
  __pipeline_commit();
  if (kMended) __pipeline_wait_prior(0);
  out[threadIdx.x] = values[threadIdx.x];
}

// Lacks a fence between a value and the flag that another block waits for.
template <bool kMended>
__global__ void flag(float* value, int* flag, float* out) {
  if (blockIdx.x == 0) {
    *value = 3;
    if (kMended) __threadfence();
    atomicExch(flag, 1);
  } else {
    while (atomicAdd(flag, 0) == 0) continue;
    if (kMended) __threadfence();
    *out = *value;
  }
}

__global__ void fill(float* values, float value) { values[threadIdx.x] = value; }
__global__ void add_one(float* values) { values[threadIdx.x] += 1; }

// Reads one element behind the allocation.
template <bool kMended>
__global__ void shift(const float* in, float* out, int count) {
  const int from = threadIdx.x + 1;
  out[threadIdx.x] = kMended && from >= count ? 0 : in[from];
}

template <bool kMended>
void run(const char* name, float* in, float* out) {
  if (!strcmp(name, "barrier")) barrier<kMended><<<1, kThreads>>>(out);
  if (!strcmp(name, "copy")) copy<kMended><<<1, kThreads>>>(in, out);
  if (!strcmp(name, "flag")) {
    TRY(cudaMemset(in, 0, 8));
    flag<kMended><<<2, 1>>>(in, reinterpret_cast<int*>(in + 1), out);
  }
  if (!strcmp(name, "streams")) {  // lacks an event between two streams
    cudaStream_t first, second;
    cudaEvent_t filled;
    TRY(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
    TRY(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
    TRY(cudaEventCreate(&filled));
    fill<<<1, kThreads, 0, first>>>(out, 1);
    TRY(cudaEventRecord(filled, first));
    if (kMended) TRY(cudaStreamWaitEvent(second, filled, 0));
    add_one<<<1, kThreads, 0, second>>>(out);
    TRY(cudaDeviceSynchronize());
    TRY(cudaEventDestroy(filled));
    TRY(cudaStreamDestroy(first));
    TRY(cudaStreamDestroy(second));
  }
  if (!strcmp(name, "bounds")) shift<kMended><<<1, kThreads>>>(in, out, kThreads);
}

int main(int count, char** words) {
  float *in, *out;
  const float zeros[kThreads] = {};
  TRY(cudaMalloc(&in, sizeof zeros));
  TRY(cudaMalloc(&out, sizeof zeros));
  TRY(cudaMemcpy(in, zeros, sizeof zeros, cudaMemcpyHostToDevice));
  TRY(cudaDeviceSynchronize());
  count > 2 ? run<true>(words[1], in, out) : run<false>(words[1], in, out);
  TRY(cudaDeviceSynchronize());
  TRY(cudaFree(in));
  TRY(cudaFree(out));
  printf("%s ran\n", words[1]);
  return 0;
}
