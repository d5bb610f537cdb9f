// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the driver's one instance, and look-ups in its tables.
#include "sim/driver/state.h"

#include "sim/driver/entry.h"
#include "sim/driver/per_thread.h"

namespace sim::driver {

// Never destroyed: worker threads and late callers may outlive static destructors.
Driver& Driver::get() {
  static Driver* driver = new Driver;
  return *driver;
}

ThreadState& thread_state() { return per_thread<ThreadState>(); }

Block* Driver::find_block(uint64_t address, uint64_t bytes) {
  auto it = blocks.upper_bound(address);
  if (it == blocks.begin()) return nullptr;
  Block& block = std::prev(it)->second;
  const uint64_t offset = address - block.base;
  if (offset >= block.bytes || bytes > block.bytes - offset) return nullptr;
  return &block;
}

Context* current_context() {
  ThreadState& thread = thread_state();
  if (thread.stack.empty()) return nullptr;
  auto context = Driver::get().find<Context>(thread.stack.back());
  return context && context->alive ? context.get() : nullptr;
}

}  // namespace sim::driver
