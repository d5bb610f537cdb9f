// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Copies from global to shared memory that run beside the computation (sm_80), in groups that
// complete in order. Waiting covers the thread's own copies; a barrier publishes them.
#pragma once

namespace lathe {

// 16 bytes to `to`; zeros, and nothing is read, where `wanted` is false.
__device__ __forceinline__ void copy_async(unsigned to, const void* from, bool wanted) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(wanted ? 16 : 0)
               : "memory");
}
// The same of 8 bytes, and of 4.
__device__ __forceinline__ void copy_async_pair(unsigned to, const void* from, bool wanted) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(wanted ? 8 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_word(unsigned to, const void* from, bool wanted) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(wanted ? 4 : 0)
               : "memory");
}
// Closes the group of the copies since the last one; an empty group is one too.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most kPending groups are under way.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace lathe
