// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kernels take memory from this heap by malloc and new, and give it back by free and delete. It
// belongs to a context, so that a later kernel may free what an earlier one took.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "sim/check/memory.h"

namespace sim {

class Heap {
 public:
  // The heap takes its `bytes` from `memory` at the first allocation (CU_LIMIT_MALLOC_HEAP_SIZE).
  // The memory must outlive it.
  Heap(Memory* memory, uint64_t bytes) : memory_(memory), bytes_(bytes) {}
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Returns unwritten memory with 16 bytes of alignment; 0 if no piece is large enough.
  uint64_t allocate(uint64_t bytes);
  // Returns false if `address` is not the beginning of what is allocated.
  bool release(uint64_t address);

 private:
  void give(uint64_t address, uint64_t bytes);  // to the free pieces; joins neighbours

  Memory* memory_;
  uint64_t bytes_;
  std::mutex mutex_;
  bool tried_ = false;  // to take the heap's memory
  uint64_t base_ = 0;
  std::map<uint64_t, uint64_t> free_, used_;  // bytes by address
};

}  // namespace sim
