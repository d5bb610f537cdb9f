// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/async/memory.h"

#include "sim/exec/grid_state.h"
#include "sim/exec/trace.h"

namespace sim {

Region* check_global(Warp& w, const Inst& i, unsigned lane, uint64_t address, uint32_t bytes,
                     bool store) {
  Region* r = find_region(w, i, address, address + bytes);
  if (!r || (store && r->read_only)) {
    report(w, i, r ? Fault::read_only : Fault::out_of_bounds, lane, address, bytes, Space::global,
           store);
    return nullptr;
  }
  Tally& tally = w.worker->tally;
  Traffic& t = store ? tally.global_store : tally.global_load;
  const uint64_t first = address >> 5, last = (address + bytes - 1) >> 5;
  t.bytes += bytes;
  t.sectors += last - first + 1;
  t.minimum_sectors += (bytes + 31) / 32;
  uint64_t* touched = store ? r->stored : r->loaded;
  for (uint64_t sector = first; sector <= last; ++sector) {
    const uint64_t bit = sector - (r->base >> 5);
    touched[bit / 64] |= 1ull << (bit % 64);
  }
  if (w.worker->recorder) {
    w.worker->recorder->sectors(first, static_cast<uint32_t>(last - first + 1));
  }
  return r;
}

bool prefetch_global(Warp& w, const Inst& i, unsigned lane, uint64_t address, uint32_t bytes) {
  const Region* r = find_region(w, i, address, address + bytes);
  if (!r) {
    report(w, i, Fault::out_of_bounds, lane, address, bytes, Space::global, false);
    return false;
  }
  KnownAllocation& known = *static_cast<HostWorker&>(*w.worker).recent;  // find_region found it
  known.prefetched.resize(known.loaded.size());
  const uint64_t first = address >> 5, last = (address + bytes - 1) >> 5;
  for (uint64_t sector = first; sector <= last; ++sector) {
    const uint64_t bit = sector - (r->base >> 5);
    known.prefetched[bit / 64] |= 1ull << (bit % 64);
  }
  if (w.worker->recorder) {
    w.worker->recorder->sectors(first, static_cast<uint32_t>(last - first + 1));
    w.worker->recorder->prefetch();
  }
  return true;
}

}  // namespace sim
