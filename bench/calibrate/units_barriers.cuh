// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Barriers within a block and a cluster, and other instructions that hold warps together.
#pragma once
#include "units_measure.cuh"

namespace units {

enum class Sync {
  kBar,
  kWarp,
  kElect,
  kCluster,
  kFenceShared,
  kFenceAll,
  kFenceBlock,
  kFenceDevice
};

template <Sync kind>
__device__ __forceinline__ uint32_t synchronise(int threads) {
  uint32_t result = 0;
  if constexpr (kind == Sync::kBar) {
    asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
  } else if constexpr (kind == Sync::kWarp) {
    asm volatile("bar.warp.sync 0xFFFFFFFF;" ::: "memory");
  } else if constexpr (kind == Sync::kElect) {
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xFFFFFFFF;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(result));
  } else if constexpr (kind == Sync::kCluster) {
    cluster_barrier();
  } else if constexpr (kind == Sync::kFenceShared) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  } else if constexpr (kind == Sync::kFenceAll) {
    asm volatile("fence.proxy.async;" ::: "memory");
  } else if constexpr (kind == Sync::kFenceBlock) {
    __threadfence_block();
  } else {
    __threadfence();
  }
  return result;
}

template <Sync kind>
__global__ void synchronised(unsigned long long* cycles, uint32_t* sink, int repetitions) {
  uint32_t sum = 0;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 16; ++k) sum += synchronise<kind>(blockDim.x);
  }
  watch.stop(cycles);
  if (sum == 0x7FFFFFFF) *sink = sum;
}

template <Sync kind>
void sync(const std::string& what, int threads, int cluster = 1) {
  figure("barrier", what, "cycles", [=] {
    return per_repetition(
               [=](int n) {
                 start({cluster, threads, 0, cluster}, synchronised<kind>, room.cycles, room.sink,
                       n);
               },
               times(64)) /
           16;
  });
}

// Two warps go on by barrier 1 and two by barrier 2: there and back are two barriers.
__global__ void named_round_trips(unsigned long long* cycles, int repetitions) {
  const bool first = threadIdx.x < 64;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
    if (first) {
#pragma unroll
      for (int k = 0; k < 8; ++k)
        asm volatile("bar.arrive 1, 128;\n bar.sync 2, 128;" ::: "memory");
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k)
        asm volatile("bar.sync 1, 128;\n bar.arrive 2, 128;" ::: "memory");
    }
  }
  watch.stop(cycles);
}

__global__ void rounds_of_all(unsigned long long* cycles, int repetitions) {
  __shared__ uint64_t barrier;
  const uint32_t at = address(&barrier);
  if (threadIdx.x == 0) init(at, blockDim.x);
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      arrive(at);
      wait(at, k % 2);
    }
  }
  watch.stop(cycles);
}

// One thread of each of two warps: there by one mbarrier and back by another.
__global__ void round_trips_of_warps(unsigned long long* cycles, int repetitions) {
  __shared__ uint64_t barriers[2];
  const uint32_t a = address(&barriers[0]), b = address(&barriers[1]);
  if (threadIdx.x == 0) {
    init(a, 1);
    init(b, 1);
  }
  Watch watch;
  watch.start();
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int r = 0; r < repetitions; ++r) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        arrive(a);
        wait(b, k % 2);
      }
    }
  } else if (threadIdx.x == 32) {
#pragma unroll 1
    for (int r = 0; r < repetitions; ++r) {
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        wait(a, k % 2);
        arrive(b);
      }
    }
  }
  watch.stop(cycles);
}

// The same between two blocks of a cluster, by warps of which one thread arrives.
__global__ void round_trips_of_blocks(unsigned long long* cycles, int repetitions) {
  __shared__ uint64_t barrier;
  const uint32_t own = address(&barrier), rank = cluster_rank();
  const uint32_t other = remote(own, rank ^ 1);
  if (threadIdx.x == 0) {
    init(own, 1);
    init_visible();
  }
  cluster_barrier();
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (rank == 0) {
        if (threadIdx.x == 0) arrive_remote(other);
        wait_cluster(own, k % 2);
      } else {
        wait_cluster(own, k % 2);
        if (threadIdx.x == 0) arrive_remote(other);
      }
    }
  }
  watch.stop(cycles);
  cluster_barrier();  // Nobody arrives at a block that has ended.
}

// A thread that arrives without anybody waiting: what the arrival itself takes.
__global__ void arrivals(unsigned long long* cycles, int repetitions) {
  __shared__ uint64_t barrier;
  const uint32_t at = address(&barrier);
  if (threadIdx.x == 0) init(at, 32);
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) arrive(at);
  }
  watch.stop(cycles);
}

__global__ void tries(unsigned long long* cycles, uint32_t* sink, int repetitions) {
  __shared__ uint64_t barrier;
  const uint32_t at = address(&barrier);
  if (threadIdx.x == 0) init(at, 1);
  uint32_t sum = 0;
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      uint32_t done;  // The phase before the first one counts as over, so that each try succeeds.
      asm volatile(
          "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 1;\n"
          " selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(at)
          : "memory");
      if (!done) __trap();
      sum += done;
    }
  }
  watch.stop(cycles);
  if (sum == 0x7FFFFFFF) *sink = sum;
}

// 128 threads start with 128 registers each, as four blocks of them are to fit.
__global__ void __launch_bounds__(128, 4)
    registers_given(unsigned long long* cycles, int repetitions) {
  Watch watch;
  watch.start();
#pragma unroll 1
  for (int r = 0; r < repetitions; ++r) {
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n setmaxnreg.inc.sync.aligned.u32 128;");
    }
  }
  watch.stop(cycles);
}

template <class K>
void rounds(const std::string& what, K kernel, Grid grid) {
  figure("barrier", what, "cycles", [=] {
    return per_repetition([=](int n) { start(grid, kernel, room.cycles, n); }, times(64)) / 8;
  });
}

inline void measure_barriers() {
  for (const int warps : {4, 8, 12, 16}) {
    sync<Sync::kBar>("bar.sync; " + text(warps) + " warps", 32 * warps);
  }
  rounds("bar.arrive and bar.sync; round trip", named_round_trips, {1, 128});
  for (const int warps : {1, 4, 8}) {
    rounds("mbarrier; all threads arrive and wait; " + text(warps) + " warps", rounds_of_all,
           {1, 32 * warps});
  }
  rounds("mbarrier; round trip of two warps", round_trips_of_warps, {1, 64});
  rounds("mbarrier; round trip of two blocks", round_trips_of_blocks, {2, 32, 0, 2});
  rounds("mbarrier; arrival of 32 threads", arrivals, {1, 32});
  figure("barrier", "mbarrier; try_wait that succeeds", "cycles", [] {
    return per_repetition(
               [](int n) {
                 start({1, 32}, tries, room.cycles, room.sink, n);
               },
               times(64)) /
           8;
  });
  sync<Sync::kWarp>("__syncwarp", 32);
  sync<Sync::kElect>("elect.sync", 32);
  for (const int blocks : {2, 4}) {
    sync<Sync::kCluster>("cluster barrier of " + text(blocks) + " blocks of 1 warp", 32, blocks);
    sync<Sync::kCluster>("cluster barrier of " + text(blocks) + " blocks of 4 warps", 128, blocks);
  }
  rounds("setmaxnreg; dec and inc", registers_given, {1, 128});
  sync<Sync::kFenceShared>("fence.proxy.async.shared::cta", 128);
  sync<Sync::kFenceAll>("fence.proxy.async", 128);
  sync<Sync::kFenceBlock>("__threadfence_block", 128);
  sync<Sync::kFenceDevice>("__threadfence", 128);
}

}  // namespace units
