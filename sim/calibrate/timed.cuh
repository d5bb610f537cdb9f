// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs what a program is about: once, as the simulator's clock wants it, or as often as
// CALIBRATE_RUNS says, which is for a GPU. Then the median of the times goes to standard output:
//
//   microseconds 123.4 121.9 127.0        median, 10th and 90th percentile
//
// A GPU's power and with it its clock depend on the data, so that they must not be zeros there.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

inline int timed_runs() {
  const char* runs = std::getenv("CALIBRATE_RUNS");
  return runs ? std::atoi(runs) : 0;
}

// Sums of four uniform numbers, whose variance is 1.
template <class T>
__global__ void normal_numbers(T* to, size_t count, uint32_t seed) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed * 0x9E3779B9u;
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
      x ^= x >> 16, x *= 0x7FEB352Du, x ^= x >> 15, x *= 0x846CA68Bu, x ^= x >> 16;
      sum += static_cast<float>(x >> 8) * (1.f / (1 << 24)) - 0.5f;
    }
    to[i] = static_cast<T>(sum * 1.7320508f);
  }
}

__global__ inline void equal_numbers(float* to, size_t count, float value) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = value;
}

template <class T>
void fill_normally(void* memory, size_t count, uint32_t seed) {
  if (timed_runs() > 0) normal_numbers<<<1024, 256>>>(static_cast<T*>(memory), count, seed);
}

// Calls `before` and `run`, and times `run`. What they queue is in the default stream.
template <class Before, class Run>
void once_or_timed(Before before, Run run) {
  const int runs = timed_runs();
  if (runs <= 0) {
    before(), run();
    return;
  }
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  std::vector<float> times;
  for (int k = -runs / 4 - 1; k < runs; ++k) {
    before();
    cudaEventRecord(begin);
    run();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, begin, end);
    if (k >= 0) times.push_back(1e3f * milliseconds);
  }
  std::sort(times.begin(), times.end());
  const size_t last = times.size() - 1;
  std::printf("microseconds %.3f %.3f %.3f\n", times[last / 2], times[last / 10],
              times[last - last / 10]);
}
