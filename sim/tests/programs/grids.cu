// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Programs whose blocks meet: grids of cooperative launches, clusters, last blocks, and lists that
// threads allocate. grids_test.cpp says what each kernel computes.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

// Sums n words in two steps: each block writes its sum, and after the grid has met block 0 adds them.
extern "C" __global__ void reduce(const int* in, int n, int* partial, int* total) {
  __shared__ int of_warp[32];
  const auto grid = cg::this_grid();
  const auto block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  int sum = 0;
  for (auto i = grid.thread_rank(); i < n; i += grid.size()) sum += in[i];
  sum = cg::reduce(warp, sum, cg::plus<int>());
  if (warp.thread_rank() == 0) of_warp[warp.meta_group_rank()] = sum;
  block.sync();
  if (warp.meta_group_rank() == 0) {
    const bool has = warp.thread_rank() < warp.meta_group_size();
    sum = cg::reduce(warp, has ? of_warp[warp.thread_rank()] : 0, cg::plus<int>());
    if (warp.thread_rank() == 0) partial[blockIdx.x] = sum;
  }
  grid.sync();
  if (grid.thread_rank() != 0) return;
  int all = 0;
  for (unsigned k = 0; k < gridDim.x; ++k) all += partial[k];
  *total = grid.is_valid() ? all : -1;
}

// Smooths a line of n words `rounds` times; the grid meets after each, with an arrival and a wait.
extern "C" __global__ void smooth(int* a, int* b, int n, int rounds) {
  auto grid = cg::this_grid();
  for (int round = 0; round < rounds; ++round) {
    for (int i = static_cast<int>(grid.thread_rank()); i < n; i += static_cast<int>(grid.size())) {
      const int left = a[i > 0 ? i - 1 : 0], right = a[i < n - 1 ? i + 1 : n - 1];
      b[i] = (left + 2 * a[i] + right) / 4 + round;
    }
    auto token = grid.barrier_arrive();
    int* const swapped = a;
    a = b;
    b = swapped;
    grid.barrier_wait(std::move(token));
  }
}

#if __CUDA_ARCH__ >= 900
// Every block of a cluster adds up a quarter of the words and reads what the others have.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sum(const int* in, int* out) {
  __shared__ int sum;
  auto cluster = cg::this_cluster();
  if (threadIdx.x == 0) sum = 0;
  cluster.sync();
  const auto rank = cluster.block_rank();
  atomicAdd(cluster.map_shared_rank(&sum, in[cluster.thread_rank()] % 4), in[cluster.thread_rank()]);
  auto token = cluster.barrier_arrive();
  const int mine = static_cast<int>(rank);
  cluster.barrier_wait(std::move(token));
  int all = 0;
  for (unsigned k = 0; k < cluster.num_blocks(); ++k) all = all * 3 + *cluster.map_shared_rank(&sum, k);
  out[blockIdx.x * blockDim.x + threadIdx.x] = all * 4 + mine;
  cluster.sync();
}
#endif

// The last block that comes adds up what all have written; it knows by an atomic behind a fence.
__device__ unsigned blocks_done = 0;
extern "C" __global__ void last_block(const int* in, int n, volatile int* partial, int* total) {
  __shared__ bool last;
  int sum = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  sum = static_cast<int>(__reduce_add_sync(0xFFFFFFFF, static_cast<unsigned>(sum)));
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(&blocks_done, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  int all = 0;
  for (unsigned k = 0; k < gridDim.x; ++k) all += partial[k];
  *total = all;
  blocks_done = 0;
}

// Each thread makes a list of i % 7 nodes on the heap; another kernel adds it up and frees it.
struct Node {
  int value;
  Node* next;
};
extern "C" __global__ void make_lists(const int* in, Node** lists) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  Node* first = nullptr;
  for (int k = 0; k < static_cast<int>(i % 7); ++k) {
    Node* const node = static_cast<Node*>(malloc(sizeof(Node)));
    node->value = in[i] + k;
    node->next = first;
    first = node;
  }
  lists[i] = first;
}
extern "C" __global__ void sum_lists(Node** lists, int* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  int sum = 0;
  for (Node* node = lists[i]; node != nullptr;) {
    Node* const next = node->next;
    sum += node->value;
    free(node);
    node = next;
  }
  out[i] = sum;
}

// A block shares memory that one thread has allocated, by new and delete.
extern "C" __global__ void shared_array(const int* in, int* out) {
  __shared__ int* room;
  if (threadIdx.x == 0) room = new int[blockDim.x];
  __syncthreads();
  if (room == nullptr) return;
  room[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) delete[] room;
}

// Takes pieces until there are none, says how many it got, and gives all back.
extern "C" __global__ void exhaust(int* out, unsigned bytes) {
  void** held = nullptr;
  int count = 0;
  for (;;) {
    void** const piece = static_cast<void**>(malloc(bytes));
    if (piece == nullptr) break;
    *piece = held;
    held = piece;
    ++count;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = count;
  while (held != nullptr) {
    void** const next = static_cast<void**>(*held);
    free(held);
    held = next;
  }
}
