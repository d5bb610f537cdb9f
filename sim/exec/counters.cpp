// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file leads from the workers' tallies to Counters.
#include <algorithm>

#include "sim/exec/grid_state.h"

namespace sim {
namespace {

void add_traffic(AllTraffic* to, const AllTraffic& other) {
  for (const auto& kind : kTrafficKinds) {
    Traffic& sum = to->*kind.value;
    for (const auto& each : kTrafficCounts) sum.*each.value += other.*kind.value.*each.value;
  }
}

uint64_t popcount(const std::vector<uint64_t>& bits) {
  uint64_t n = 0;
  for (const uint64_t w : bits) n += static_cast<uint64_t>(__builtin_popcountll(w));
  return n;
}

uint64_t scaled(uint64_t count, double scale) {
  return scale == 1 ? count : static_cast<uint64_t>(static_cast<double>(count) * scale + 0.5);
}

// Sectors that any worker touched. Blocks that did not run would have touched others like it, but
// no more than an allocation has.
void unique_sectors(const Launch& launch, const std::vector<std::unique_ptr<HostWorker>>& workers,
                    Counters* c) {
  struct Touched {
    std::vector<uint64_t> loaded, stored, prefetched;
  };
  std::map<const Allocation*, Touched> all;
  auto merge = [](std::vector<uint64_t>* into, const std::vector<uint64_t>& from) {
    into->resize(std::max(into->size(), from.size()));
    for (size_t k = 0; k < from.size(); ++k) (*into)[k] |= from[k];
  };
  for (const auto& worker : workers) {
    for (const auto& [allocation, known] : worker->known) {
      merge(&all[allocation].loaded, known->loaded);
      merge(&all[allocation].stored, known->stored);
      merge(&all[allocation].prefetched, known->prefetched);
    }
  }
  for (auto& [allocation, bits] : all) {
    const uint64_t most = 64 * std::max(bits.loaded.size(), bits.stored.size());
    const auto of_grid = [&](const std::vector<uint64_t>& sectors) {
      return std::min(most, scaled(popcount(sectors), launch.scale));
    };
    c->unique_load_sectors += of_grid(bits.loaded);
    c->unique_store_sectors += of_grid(bits.stored);
    c->unique_prefetch_sectors += of_grid(bits.prefetched);
    for (size_t k = 0; k < bits.prefetched.size(); ++k) bits.prefetched[k] &= ~bits.loaded[k];
    c->vain_prefetch_sectors += of_grid(bits.prefetched);
  }
}

// From the blocks that ran to the whole grid; unique sectors apart.
void scale_all(const Launch& launch, Counters* c) {
  const double scale = launch.scale;
  const uint32_t* size = launch.view.cluster;
  c->sampled_blocks = launch.clusters * size[0] * size[1] * size[2];
  c->waits_left_out = launch.view.waits_left_out;
  for (uint64_t* count :
       {&c->warp_instructions, &c->thread_instructions, &c->tensor_ops, &c->barrier_waits}) {
    *count = scaled(*count, scale);
  }
  for (auto& [name, count] : c->by_class) count = scaled(count, scale);
  for (const auto& kind : kTrafficKinds) {
    for (const auto& each : kTrafficCounts) {
      uint64_t& count = c->*kind.value.*each.value;
      count = scaled(count, scale);
    }
  }
}

}  // namespace

void Counters::add(const Counters& o) {
  warp_instructions += o.warp_instructions;
  thread_instructions += o.thread_instructions;
  for (const auto& [name, n] : o.by_class) by_class[name] += n;
  add_traffic(this, o);
  unique_load_sectors += o.unique_load_sectors;
  unique_store_sectors += o.unique_store_sectors;
  unique_prefetch_sectors += o.unique_prefetch_sectors;
  vain_prefetch_sectors += o.vain_prefetch_sectors;
  tensor_ops += o.tensor_ops;
  barrier_waits += o.barrier_waits;
  seconds += o.seconds;
}

Counters collect(const Launch& launch, const std::vector<std::unique_ptr<HostWorker>>& workers) {
  Counters c;
  const Function& f = *launch.function;
  for (const auto& worker : workers) {
    for (size_t pc = 0; pc < f.code.size(); ++pc) {
      const Class cls = f.infos[f.code[pc].info].cls;
      if (!worker->counts[pc] || cls == Class::pseudo) continue;
      c.warp_instructions += worker->counts[pc];
      c.by_class[kClassNames[static_cast<int>(cls)]] += worker->counts[pc];
      if (waits(f.infos[f.code[pc].info])) c.barrier_waits += worker->counts[pc];
    }
    const Tally& t = worker->tally;
    c.thread_instructions += t.thread_instructions;
    c.tensor_ops += t.tensor_ops;
    add_traffic(&c, t);
  }
  if (!launch.sampled.empty()) scale_all(launch, &c);
  unique_sectors(launch, workers, &c);
  if (launch.settings->profile) c.lines = collect_lines(launch, workers);
  return c;
}

}  // namespace sim
