// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Programs with one mistake each, which is mended where REPAIRED is defined. mistakes_test.cpp says
// what is found. All kernels have the same parameters; n is the number of threads of the grid.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;

#ifdef REPAIRED
constexpr bool kRepaired = true;
#else
constexpr bool kRepaired = false;
#endif

__device__ unsigned rank_in_grid() { return blockIdx.x * blockDim.x + threadIdx.x; }

// The source of a copy is given a new value before anybody has waited for the copy.
extern "C" __global__ void source_rewritten(int* in, int* out, int n) {
  __shared__ int room[128];
  const unsigned i = rank_in_grid();
  __pipeline_memcpy_async(&room[threadIdx.x], &in[i], 4);
  __pipeline_commit();
  if (kRepaired) __pipeline_wait_prior(0);
  in[i] = -1;
  __pipeline_wait_prior(0);
  out[i] = room[threadIdx.x];
}

// A neighbour gives the source a new value: the barrier comes before the wait, not after it.
extern "C" __global__ void neighbours_source(int* in, int* out, int n) {
  __shared__ int room[128];
  __pipeline_memcpy_async(&room[threadIdx.x], &in[threadIdx.x], 4);
  __pipeline_commit();
  if (kRepaired) __pipeline_wait_prior(0);
  __syncthreads();
  in[threadIdx.x ^ 64] = -1;
  __pipeline_wait_prior(0);
  out[threadIdx.x] = room[threadIdx.x];
}

// The block looks at a counter of all blocks by an ordinary load.
extern "C" __global__ void counter_read(int* in, int* out, int n) {
  int* const counter = out + 1000;
  if (threadIdx.x != 0) return;
  atomicAdd(counter, 1);
  const int seen = kRepaired ? atomicAdd(counter, 0) : *counter;
  out[blockIdx.x] = seen > 0;
}

// The counter is cleared by an ordinary store, while others may still add to it.
extern "C" __global__ void counter_cleared(int* in, int* out, int n) {
  int* const counter = out + 1000;
  if (threadIdx.x == 0) {
    if (blockIdx.x == 0) {
      if (kRepaired) {
        atomicExch(counter, 0);
      } else {
        *counter = 0;
      }
    }
    atomicAdd(counter, 1);
  }
  out[rank_in_grid()] = 1;
}

// Whole warps without work leave before the barrier that the others count on.
extern "C" __global__ void left_early(int* in, int* out, int n) {
  __shared__ int room[128];
  const bool works = threadIdx.x < 64;
  if (!kRepaired && !works) return;
  if (works) room[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  if (works) out[threadIdx.x] = room[63 - threadIdx.x];
}

// All lanes name the first eighth of the warp instead of their own.
extern "C" __global__ void others_tile(int* in, int* out, int n) {
  const unsigned mask = kRepaired ? 0xFFu << (threadIdx.x & 24) : 0xFFu;
  out[rank_in_grid()] = __shfl_sync(mask, in[rank_in_grid()], 0, 8);
}

// Lanes exchange values through shared memory without meeting.
extern "C" __global__ void no_meeting(int* in, int* out, int n) {
  __shared__ int room[128];
  const auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  room[threadIdx.x] = in[threadIdx.x];
  if (kRepaired) tile.sync();
  out[threadIdx.x] = room[threadIdx.x ^ 3];
}

// Blocks use what other blocks have written before the grid has met.
extern "C" __global__ void no_grid_sync(int* in, int* out, int n) {
  auto grid = cg::this_grid();
  in[grid.thread_rank()] = static_cast<int>(grid.thread_rank());
  if (kRepaired) grid.sync();
  out[grid.thread_rank()] = in[(grid.thread_rank() + blockDim.x) % n];
}

// The same piece of the heap is given back twice.
extern "C" __global__ void freed_twice(int* in, int* out, int n) {
  int* const piece = static_cast<int*>(malloc(64));
  *piece = 7;
  out[rank_in_grid()] = *piece;
  free(piece);
  if (!kRepaired) free(piece);
}

// Memory of malloc is read before anybody has written it.
extern "C" __global__ void heap_unwritten(int* in, int* out, int n) {
  int* const piece = static_cast<int*>(malloc(64));
  if (kRepaired) *piece = 3;
  out[rank_in_grid()] = *piece;
  free(piece);
}

// A copy of the group is read before the group has waited for it.
extern "C" __global__ void no_wait(int* in, int* out, int n) {
  __shared__ int room[128];
  const auto block = cg::this_thread_block();
  cg::memcpy_async(block, room, in, sizeof room);
  if (kRepaired) cg::wait(block);
  out[threadIdx.x] = room[threadIdx.x];
  cg::wait(block);
}

#if __CUDA_ARCH__ >= 900
__device__ unsigned place_of(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }
__device__ void bulk_load(void* to, const void* from, unsigned bytes, unsigned long long* barrier) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%3], %2;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place_of(to)),
      "l"(from), "r"(bytes), "r"(place_of(barrier))
      : "memory");
}
__device__ void wait_for(unsigned long long* barrier, unsigned parity) {
  asm volatile(
      "{ .reg .pred p;\nAGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN; }" ::"r"(
          place_of(barrier)),
      "r"(parity)
      : "memory");
}

// A pipeline asks for one tile more than it uses.
extern "C" __global__ void load_too_many(int* in, int* out, int n) {
  __shared__ alignas(128) int room[2][32];
  __shared__ unsigned long long full[2];
  if (threadIdx.x == 0) {
    for (auto& barrier : full) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(place_of(&barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    bulk_load(room[0], in, 128, &full[0]);
  }
  __syncthreads();
  for (int k = 0; k < 3; ++k) {
    const bool more = kRepaired ? k < 2 : true;
    if (threadIdx.x == 0 && more) bulk_load(room[(k + 1) % 2], in + 32 * (k + 1), 128, &full[(k + 1) % 2]);
    wait_for(&full[k % 2], k / 2 % 2);
    if (threadIdx.x < 32) out[32 * k + threadIdx.x] = room[k % 2][threadIdx.x];
    __syncthreads();
  }
}

// An mbarrier of the neighbour is told of data, as if it were the block's own.
extern "C" __global__ void __cluster_dims__(2, 1, 1) narrow_arrival(int* in, int* out, int n) {
  __shared__ int room[128];
  __shared__ unsigned long long full;
  auto cluster = cg::this_cluster();
  const unsigned other = cluster.block_rank() ^ 1;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(place_of(&full)), "r"(blockDim.x) : "memory");
  }
  cluster.sync();
  *cluster.map_shared_rank(&room[threadIdx.x], other) = in[rank_in_grid()];
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(place_of(&full)), "r"(other));
  if (kRepaired) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
    asm volatile(
        "{ .reg .pred p;\nAGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra AGAIN; }" ::"r"(
            place_of(&full))
        : "memory");
  } else {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
    wait_for(&full, 0);
  }
  out[rank_in_grid()] = room[threadIdx.x];
  cluster.sync();
}

// A block stores a tile and ends, without waiting until the tile has been read.
extern "C" __global__ void left_with_store(int* in, int* out, int n) {
  __shared__ alignas(128) int room[128];
  room[threadIdx.x] = in[rank_in_grid()];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x != 0) return;
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\ncp.async.bulk.commit_group;" ::"l"(
                   out + blockIdx.x * 128),
               "r"(place_of(room)), "r"(512)
               : "memory");
  if (kRepaired) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
#endif
