// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the allocation map behind Memory, for memory.cpp and definedness.cpp.
#pragma once

#include <sys/mman.h>

#include <deque>

#include "sim/check/memory.h"

namespace sim {

// An allocation that owns its bytes; they live as long as somebody holds it.
struct Owned : Allocation {
  void* mapping = nullptr;
  size_t mapped = 0;
  ~Owned() {
    if (mapping) munmap(mapping, mapped);
  }
};

struct Memory::State {
  int device = 0;
  uint64_t limit = 0, used = 0;
  std::map<uint64_t, std::shared_ptr<Owned>> map;
  std::deque<uint64_t> quarantine;
  uint64_t quarantined = 0;
  bool lists_released = false;
  std::vector<std::pair<uint64_t, uint64_t>> released;  // see take_released()
  uint64_t version = 1;
  std::vector<const Memory*> peers;  // whose memory kernels of this device may use
  std::vector<State*> watchers;      // of devices that use this one's
  mutable std::shared_mutex mutex;

  const std::shared_ptr<Owned>* holder(uint64_t address) const {
    auto it = map.upper_bound(address);
    if (it == map.begin()) return nullptr;
    --it;
    return it->second->contains(address, 1) ? &it->second : nullptr;
  }
  // Must be called on every change: an address that anybody looked up may be stale.
  void changed() {
    __atomic_fetch_add(&version, 1, __ATOMIC_SEQ_CST);
    for (State* watcher : watchers) {
      __atomic_fetch_add(&watcher->version, 1, __ATOMIC_SEQ_CST);
    }
  }
};

}  // namespace sim
