// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Looks up the allocations that memory instructions touch.
#include "sim/exec/grid_state.h"

namespace sim {

Region* find_region(Warp& w, const Inst& inst, uint64_t low, uint64_t high) {
  auto& worker = static_cast<HostWorker&>(*w.worker);
  if (high < low) return nullptr;
  const uint64_t version = __atomic_load_n(worker.launch->memory->version(), __ATOMIC_SEQ_CST);
  if (version != worker.memory_version) {
    for (Region& r : worker.region_by_ordinal) r = Region{};
    worker.memory_version = version;
    worker.recent = nullptr;
  }
  KnownAllocation* k = worker.recent;
  if (!k || low < k->region.base || high > k->region.end) {
    const auto found = worker.launch->memory->find_live(low, high - low);
    if (!found) return nullptr;
    auto& slot = worker.known[found.get()];
    if (!slot) {
      slot = std::make_unique<KnownAllocation>();
      slot->allocation = found;
      const uint64_t sectors = ((found->base + found->bytes) >> 5) - (found->base >> 5) + 1;
      slot->loaded.resize(sectors / 64 + 1);
      slot->stored.resize(sectors / 64 + 1);
      Region& r = slot->region;
      r.base = found->base;
      r.end = found->base + found->bytes;
      r.read_only = found->read_only;
      r.defined = found->defined ? found->defined->data() : nullptr;
      r.loaded = slot->loaded.data();
      r.stored = slot->stored.data();
    }
    k = slot.get();
    worker.recent = k;
  }
  worker.region_by_ordinal[inst.extra] = k->region;
  return &worker.region_by_ordinal[inst.extra];
}

}  // namespace sim
