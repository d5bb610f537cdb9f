// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/heap.h"

#include "sim/check/race_state.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

constexpr uint64_t kPieceBytes = 16;

// malloc comes after every free before it: the memory may be the same. It orders nothing else.
void order_heap(Warp& w, unsigned lane, const Heap* heap, bool acquire) {
  if (!w.race) return;
  Order o;
  o.scope = Scope::gpu;
  o.acquire = o.reads_back = acquire;
  o.release = o.rmw = !acquire;
  uint64_t key[32];
  for (uint64_t& k : key) k = reinterpret_cast<uint64_t>(heap);
  race_order(w, o, key, 1u << lane, nullptr);
}

}  // namespace

Heap::~Heap() {
  if (base_) memory_->release(base_);
}

void Heap::give(uint64_t address, uint64_t bytes) {
  auto next = free_.lower_bound(address);
  if (next != free_.end() && next->first == address + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == address) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(address, bytes);
}

uint64_t Heap::allocate(uint64_t bytes) {
  if (bytes > bytes_) return 0;
  const uint64_t wanted =
      (bytes / kPieceBytes + 1) * kPieceBytes;  // with a byte between two pieces
  const std::lock_guard lock(mutex_);
  if (!tried_) {
    tried_ = true;
    base_ = memory_->allocate(bytes_, MemoryKind::device, 0);
    if (base_) free_.emplace(base_, bytes_ / kPieceBytes * kPieceBytes);
  }
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < wanted) continue;
    const auto [address, room] = *it;
    free_.erase(it);
    if (room > wanted) free_.emplace(address + wanted, room - wanted);
    used_.emplace(address, wanted);
    memory_->undefine(address, wanted);
    return address;
  }
  return 0;
}

bool Heap::release(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto it = used_.find(address);
  if (it == used_.end()) return false;
  give(address, it->second);
  used_.erase(it);
  return true;
}

uint64_t heap_allocate(Warp& w, unsigned lane, uint64_t bytes) {
  Heap* heap = w.worker->launch->heap;
  const uint64_t address = heap->allocate(bytes);
  if (address) order_heap(w, lane, heap, true);
  return address;
}

void heap_release(Warp& w, const Inst& inst, unsigned lane, uint64_t address) {
  Heap* heap = w.worker->launch->heap;
  if (address == 0) return;
  order_heap(w, lane, heap, false);
  if (heap->release(address)) return;
  report_text(w, inst, Fault::invalid_free, lane, address, 0,
              ("free of " + hex(address) +
               ", which is no live allocation of malloc: freed before, or never allocated")
                  .c_str());
}

}  // namespace sim
