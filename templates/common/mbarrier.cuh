// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that count arrivals and bytes (sm_90), and named barriers of some warps
// of a block.
#pragma once

namespace lathe {

// A phase is over after `arrivals` of them, and after the bytes that they told of have landed.
__device__ __forceinline__ void mbarrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers known to the engine that copies. A barrier of the block follows, for
// its other threads.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives, and tells of bytes that copies will bring. It comes before these copies.
__device__ __forceinline__ void mbarrier_arrive_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity is over. A barrier that nobody arrived at yet is in phase 0,
// so a wait for parity 1 returns at once.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n .reg .pred over;\nAGAIN:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
      " @!over bra AGAIN;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Arrives at the same barrier of the cluster's block `rank`, and waits for arrivals of other
// blocks: what their threads wrote before is seen behind it.
__device__ __forceinline__ void mbarrier_arrive_cluster(unsigned barrier, unsigned rank) {
  asm volatile(
      "{\n .reg .b32 there;\n mapa.shared::cluster.u32 there, %0, %1;\n"
      " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void mbarrier_wait_cluster(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n .reg .pred over;\nAGAIN:\n"
      " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%0], %1;\n"
      " @!over bra AGAIN;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Returns whether the phase of this parity is over. Nothing is waited for.
__device__ __forceinline__ bool mbarrier_is_over(unsigned barrier, unsigned parity) {
  unsigned over;
  asm volatile(
      "{\n .reg .pred over;\n"
      " mbarrier.test_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      " selp.u32 %0, 1, 0, over;\n}"
      : "=r"(over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return over != 0;
}

// A stage of a ring, and the parity of the phase which its barriers are in, as CUTLASS names them.
// It goes on from tile to tile of a block, because the barriers do.
template <int kStages>
struct PipelineState {
  unsigned stage = 0, phase = 0;

  __device__ __forceinline__ void next() {
    ++stage;
    if (stage == kStages) stage = 0, phase ^= 1;
  }
};

// Barrier kId of kThreads threads of the block, whole warps; 0 is that of __syncthreads.
template <int kId, int kThreads>
__device__ __forceinline__ void named_barrier_sync() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}
// Counts the warp and does not wait.
template <int kId, int kThreads>
__device__ __forceinline__ void named_barrier_arrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ void named_barrier_arrive(unsigned id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

}  // namespace lathe
