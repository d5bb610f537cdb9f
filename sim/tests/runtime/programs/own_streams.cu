// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compiled with --default-stream per-thread: each host thread's launches and copies without a
// stream are in a stream of its own.
#include <thread>
#include <vector>

#include "check.h"

__global__ void add(int* x, int n, int by) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += by;
}

// Leaves the sum of all elements in *sum.
void work(int which, long long* sum) {
  constexpr int kCount = 3000, kRounds = 4;
  int* x = nullptr;
  CHECK(cudaMalloc(&x, kCount * sizeof(int)));
  std::vector<int> here(kCount, which);
  CHECK(cudaMemcpy(x, here.data(), kCount * sizeof(int), cudaMemcpyHostToDevice));
  for (int round = 0; round < kRounds; ++round)
    add<<<(kCount + 127) / 128, 128>>>(x, kCount, which);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpyAsync(here.data(), x, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(cudaStreamSynchronize(0));
  *sum = 0;
  for (int value : here) *sum += value;
  CHECK(cudaFree(x));
}

int main() {
  // The thread's stream is not the legacy one: it can be captured.
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(0, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaStreamEndCapture(0, &graph));
  CHECK(cudaGraphDestroy(graph));
  constexpr int kThreads = 3;
  long long sums[kThreads];
  std::vector<std::thread> threads;
  for (int which = 0; which < kThreads; ++which)
    threads.emplace_back(work, which + 1, &sums[which]);
  for (std::thread& thread : threads) thread.join();
  for (int which = 0; which < kThreads; ++which)
    compare("sum", sums[which], 3000LL * 5 * (which + 1));
}
