// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A sum by cooperative groups: tiles of eight threads and of two warps, groups of the threads that
// took one branch, groups by label, and a barrier of the whole grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>
#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int kThreads = 192, kTile = 8, kWideTile = 64, kLabels = 3;

struct Sums {
  float* parts;   // one for each block
  float* total;   // of all x
  int* largest;   // of all x
  int* odd;       // how many x are odd
  int* by_label;  // how many threads saw each x % kLabels last
};

// Counts once for each group of lanes that are here together.
__device__ void count_here(int* counter) {
  const cg::coalesced_group here = cg::coalesced_threads();
  if (here.thread_rank() == 0) atomicAdd(counter, static_cast<int>(here.size()));
}

__global__ void sum(const float* x, int n, Sums out) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<kTile>(block);
  __shared__ float of_tile[kThreads / kTile];
  float mine = 0;
  int last = 0, most = 0;
  for (int i = grid.thread_rank(); i < n; i += grid.size()) {
    mine += x[i];
    last = static_cast<int>(x[i]);
    most = max(most, last);
    if (last % 2 != 0) count_here(out.odd);
  }
  const auto wide = cg::tiled_partition<kWideTile>(block);
  const int largest = cg::reduce(wide, most, cg::greater<int>());
  if (wide.thread_rank() == 0) atomicMax(out.largest, largest);
  mine = cg::reduce(tile, mine, cg::plus<float>());
  if (tile.thread_rank() == 0) of_tile[tile.meta_group_rank()] = mine;
  block.sync();
  if (block.thread_rank() == 0) {
    float whole = 0;
    for (float part : of_tile) whole += part;
    out.parts[blockIdx.x] = whole;
  }
  const cg::coalesced_group alike = cg::labeled_partition(cg::coalesced_threads(), last % kLabels);
  if (alike.thread_rank() == 0) {
    atomicAdd(&out.by_label[last % kLabels], static_cast<int>(alike.size()));
  }
  grid.sync();
  if (grid.thread_rank() != 0) return;
  float total = 0;
  for (int i = 0; i < gridDim.x; ++i) total += out.parts[i];
  *out.total = total;
}

int main() {
  constexpr int kCount = 30000;
  int device = 0, multiprocessors = 0, threads_at_once = 0, fit = 0, cooperative = 0;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  CHECK(cudaDeviceGetAttribute(&threads_at_once, cudaDevAttrMaxThreadsPerMultiProcessor, device));
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, sum, kThreads, 0));
  compare("cooperative launches", cooperative, 1);
  const int blocks = std::min(16, fit * multiprocessors);

  std::vector<float> x(kCount);
  unsigned state = 1;
  for (float& value : x) value = next_number(&state) % 100;
  double total = 0, odd = 0, largest = 0;
  for (float value : x) {
    total += value;
    odd += static_cast<int>(value) % 2;
    largest = std::max<double>(largest, value);
  }
  double labels[kLabels] = {};
  const int threads = blocks * kThreads;
  for (int t = 0; t < threads; ++t) {
    const int last = t + (kCount - 1 - t) / threads * threads;
    ++labels[static_cast<int>(x[last]) % kLabels];
  }

  float* x_there = nullptr;
  Sums out = {};
  CHECK(cudaMalloc(&x_there, kCount * sizeof(float)));
  CHECK(cudaMalloc(&out.parts, blocks * sizeof(float)));
  CHECK(cudaMalloc(&out.total, sizeof(float)));
  CHECK(cudaMalloc(&out.largest, sizeof(int)));
  CHECK(cudaMalloc(&out.odd, sizeof(int)));
  CHECK(cudaMalloc(&out.by_label, kLabels * sizeof(int)));
  CHECK(cudaMemcpy(x_there, x.data(), kCount * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(out.largest, 0, sizeof(int)));
  CHECK(cudaMemset(out.odd, 0, sizeof(int)));
  CHECK(cudaMemset(out.by_label, 0, kLabels * sizeof(int)));
  int n = kCount;
  void* arguments[] = {&x_there, &n, &out};
  CHECK(cudaLaunchCooperativeKernel(sum, dim3(blocks), dim3(kThreads), arguments, 0, nullptr));
  float total_here = 0;
  int largest_here = 0, odd_here = 0, labels_here[kLabels] = {};
  CHECK(cudaMemcpy(&total_here, out.total, sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&largest_here, out.largest, sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(&odd_here, out.odd, sizeof(int), cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(labels_here, out.by_label, sizeof labels_here, cudaMemcpyDeviceToHost));
  compare("sum", total_here, total);
  compare("largest", largest_here, largest);
  compare("odd numbers", odd_here, odd);
  for (int label = 0; label < kLabels; ++label) {
    compare("threads of a label", labels_here[label], labels[label]);
  }
  // More blocks than fit at once could wait for one another for ever.
  const int too_many = multiprocessors * (threads_at_once / kThreads) + 1;
  const cudaError_t refused =
      cudaLaunchCooperativeKernel(sum, dim3(too_many), dim3(kThreads), arguments, 0, nullptr);
  compare("error of a grid that is too large", refused, cudaErrorCooperativeLaunchTooLarge);
  compare("the same, as the last error", cudaGetLastError(), cudaErrorCooperativeLaunchTooLarge);
  compare("the last error then", cudaGetLastError(), cudaSuccess);
  CHECK(cudaFree(x_there));
  CHECK(cudaFree(out.parts));
  CHECK(cudaFree(out.total));
  CHECK(cudaFree(out.largest));
  CHECK(cudaFree(out.odd));
  CHECK(cudaFree(out.by_label));
}
