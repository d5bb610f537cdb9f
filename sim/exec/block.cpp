// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One block: its memory, and whose turn it is among its warps.
#include <cstring>

#include "sim/check/race_state.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

constexpr uint64_t kQuantum = 4096;  // about how long a warp runs before the next one

uint64_t constant_value(const Constant& c, const Launch& launch) {
  const Function& f = *launch.function;
  switch (c.base) {
    case Constant::Base::symbol: {
      const auto& symbols = launch.grid->image->symbols;
      const auto it = symbols.find(c.symbol);
      return it == symbols.end() ? 0 : it->second + c.value;
    }
    case Constant::Base::shared:
      return launch.view.shared_begin + c.value;
    case Constant::Base::dynamic_shared: {
      const uint64_t end = launch.view.shared_begin + f.static_shared;
      return (end + f.dynamic_align - 1) / f.dynamic_align * f.dynamic_align + c.value;
    }
    case Constant::Base::param:
      return windows().param + c.value;
    default:
      return c.value;
  }
}

void fill_constants(uint8_t* regs, const Launch& launch) {
  for (const Constant& c : launch.function->constants) {
    const uint64_t value = constant_value(c, launch);
    uint8_t* at = regs + c.slot * static_cast<size_t>(kSlotBytes);
    for (int l = 0; l < 32; ++l) std::memcpy(at + l * c.bytes, &value, c.bytes);
  }
}

}  // namespace

BlockRun::BlockRun(Worker* worker, const Launch& launch) : worker_(worker) {
  const Function& f = *launch.function;
  const uint32_t* dims = launch.grid->block;
  block_.threads = dims[0] * dims[1] * dims[2];
  block_.warps = (block_.threads + 31) / 32;
  register_bytes_ = static_cast<size_t>(f.slots) * kSlotBytes;
  registers_.reset(new uint8_t[register_bytes_ * block_.warps + 64]());
  register_base_ =
      registers_.get() + (64 - reinterpret_cast<uintptr_t>(registers_.get()) % 64) % 64;
  predicates_.resize(static_cast<size_t>(f.predicates) * block_.warps);
  shared_.resize(launch.view.shared_bytes);
  shared_defined_.resize(launch.view.shared_bytes / 64 + 2);
  if (launch.races) races_ = make_race_block(*launch.races);
  const size_t depots = static_cast<size_t>(f.local_bytes) * 32;
  local_.resize(depots * block_.warps);
  const size_t depot_words = depots / 64 + 1;
  local_defined_.resize(depot_words * block_.warps);
  warps_.resize(block_.warps);
  block_.warp = warps_.data();
  block_.shared = shared_.data();
  block_.shared_defined = shared_defined_.data();
  block_.races = races_.get();
  block_.shared_begin = launch.view.shared_begin;
  block_.shared_bytes = launch.view.shared_bytes;
  for (uint32_t k = 0; k < block_.warps; ++k) {
    Warp& w = warps_[k];
    w.regs = register_base_ + k * register_bytes_;
    w.preds = predicates_.data() + static_cast<size_t>(k) * f.predicates;
    w.block = &block_;
    w.worker = worker;
    w.function = &f;
    w.local = local_.data() + k * depots;
    w.local_defined = local_defined_.data() + k * depot_words;
    w.index = k;
    fill_constants(w.regs, launch);
  }
}

void BlockRun::start(uint64_t linear) {
  const Launch& launch = *worker_->launch;
  const Function& f = *launch.function;
  const uint32_t* grid = launch.grid->grid;
  block_.linear = linear;
  block_.id[0] = static_cast<uint32_t>(linear % grid[0]);
  block_.id[1] = static_cast<uint32_t>(linear / grid[0] % grid[1]);
  block_.id[2] = static_cast<uint32_t>(linear / grid[0] / grid[1]);
  block_.warps_done = 0;
  block_.executed = 0;
  block_.random = mix(launch.settings->seed ^ mix(linear + 1));
  block_.next = static_cast<uint32_t>(next_random(block_.random) % block_.warps);
  for (Barrier& b : block_.barriers) b = Barrier{};
  // Undefined memory looks like NaN in every format.
  const int poison = 0x7F;
  if (!shared_.empty()) std::memset(shared_.data(), poison, shared_.size());
  if (!local_.empty()) std::memset(local_.data(), poison, local_.size());
  std::fill(shared_defined_.begin(), shared_defined_.end(), 0);
  std::fill(local_defined_.begin(), local_defined_.end(), 0);
  for (uint32_t k = 0; k < block_.warps; ++k) {
    Warp& w = warps_[k];
    std::memset(w.preds, 0, f.predicates * sizeof(uint32_t));
    w.preds[kPredTrue] = ~0u;
    if (f.reads_undefined_registers) {
      std::memset(w.regs, poison, register_bytes_);
      fill_constants(w.regs, launch);
    }
    const uint32_t lanes = std::min(32u, block_.threads - 32 * k);
    w.live = lanes == 32 ? ~0u : (1u << lanes) - 1;
    w.stop = false;
    w.state = WarpState::runnable;
    w.strand_count = 1;
    w.current = 0;
    w.strands[0] = Strand{};
    w.strands[0].mask = w.live;
    for (Node& n : w.nodes) n.used = false;
  }
  start_races(block_);
}

bool BlockRun::advance(uint64_t budget) {
  Launch& launch = *worker_->launch;
  const uint64_t limit = launch.settings->instruction_limit;
  const uint64_t stop_at = block_.executed + budget;
  uint32_t idle = 0;
  while (block_.warps_done < block_.warps) {
    if (launch.error.load(std::memory_order_relaxed)) return false;
    if (block_.executed >= stop_at) return true;
    Warp& w = warps_[block_.next];
    block_.next = (block_.next + 1) % block_.warps;
    if (w.state != WarpState::runnable) {
      if (++idle > block_.warps) return deadlock();
      continue;
    }
    idle = 0;
    const uint64_t before = block_.executed;
    const uint64_t quantum = kQuantum / 2 + next_random(block_.random) % kQuantum;
    const RunResult result = isa().run(w, quantum);
    if (limit) {
      const uint64_t total =
          launch.executed.fetch_add(block_.executed - before) + block_.executed - before;
      if (total > limit) {
        int none = 0;
        launch.error.compare_exchange_strong(none, 702);
        return false;
      }
    }
    if (result == RunResult::stopped) return false;
    if (result == RunResult::done) {
      ++block_.warps_done;
      recheck_barriers(block_);
    }
  }
  return false;
}

// Every warp waits: each is reported with its place.
bool BlockRun::deadlock() {
  for (Warp& w : warps_) {
    if (w.state != WarpState::parked || w.strand_count == 0) continue;
    w.pc = w.strands[0].pc;
    report(w, w.function->code[w.pc], Fault::barrier,
           static_cast<unsigned>(__builtin_ctz(w.strands[0].mask)), 0, 0, Space::generic, false);
  }
  int none = 0;
  worker_->launch->error.compare_exchange_strong(none, 719);
  return false;
}

HostWorker::HostWorker(Launch* l) {
  launch = l;
  counts.resize(l->function->code.size());
  region_by_ordinal.resize(l->function->memory_ordinals + 1);
  pc_counts = counts.data();
  regions = region_by_ordinal.data();
  memory_version = l->memory->version().load();
}

// Blocks in turn from the common counter. A block that runs very long may be waiting for another
// one: it gives way, up to a number of blocks that a device would also hold.
void HostWorker::run() {
  constexpr uint64_t kSlice = 4'000'000;
  constexpr size_t kResident = 64;
  std::vector<std::unique_ptr<BlockRun>> busy, idle;
  size_t turn = 0;
  for (;;) {
    if (launch->error.load(std::memory_order_relaxed)) return;
    if (busy.empty() || (turn == 0 && busy.size() < kResident)) {
      const uint64_t next = launch->next_block.fetch_add(1);
      if (next < launch->blocks) {
        if (idle.empty()) idle.push_back(std::make_unique<BlockRun>(this, *launch));
        busy.push_back(std::move(idle.back()));
        idle.pop_back();
        busy.back()->start(next);
        turn = busy.size() - 1;
      } else if (busy.empty()) {
        return;
      }
    }
    if (busy[turn]->advance(kSlice)) {
      turn = (turn + 1) % busy.size();
      continue;
    }
    idle.push_back(std::move(busy[turn]));
    busy.erase(busy.begin() + static_cast<std::ptrdiff_t>(turn));
    turn = busy.empty() ? 0 : turn % busy.size();
  }
}

}  // namespace sim
