// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles one block: its memory, and the state its warps start from.
#include <cstring>

#include "sim/check/race_state.h"
#include "sim/exec/grid_state.h"

namespace sim {
namespace {

// `window`: what addresses of the block's shared memory begin with.
uint64_t constant_value(const Constant& c, const Launch& launch, uint64_t window) {
  const Function& f = *launch.function;
  switch (c.base) {
    case Constant::Base::symbol: {
      const auto& symbols = launch.grid->image->symbols;
      const auto it = symbols.find(c.symbol);
      return it == symbols.end() ? 0 : it->second + c.value;
    }
    case Constant::Base::shared:
      return window + launch.view.shared_begin + c.value;
    case Constant::Base::dynamic_shared: {
      const uint64_t end = launch.view.shared_begin + f.static_shared;
      return window + (end + f.dynamic_align - 1) / f.dynamic_align * f.dynamic_align + c.value;
    }
    default:
      return c.value;
  }
}

void fill_constants(uint8_t* regs, const Launch& launch, uint64_t window) {
  for (const Constant& c : launch.function->constants) {
    const uint64_t value = constant_value(c, launch, window);
    uint8_t* at = regs + c.slot * static_cast<size_t>(kSlotBytes);
    if (c.bytes == 8) {
      for (int l = 0; l < 32; ++l) std::memcpy(at + l * 8, &value, 8);
    } else {
      for (int l = 0; l < 32; ++l) std::memcpy(at + l * 4, &value, 4);
    }
  }
}

}  // namespace

BlockRun::BlockRun(Worker* worker, const Launch& launch, Cluster* cluster, uint32_t rank)
    : worker_(worker) {
  const Function& f = *launch.function;
  const uint32_t* dims = launch.grid->block;
  block_.threads = dims[0] * dims[1] * dims[2];
  block_.warps = (block_.threads + 31) / 32;
  block_.cluster = cluster;
  block_.rank = rank;
  block_.window = static_cast<uint64_t>(rank) << kRankShift;
  register_bytes_ = static_cast<size_t>(f.slots) * kSlotBytes;
  registers_.reset(new uint8_t[register_bytes_ * block_.warps + 64]());
  register_base_ =
      registers_.get() + (64 - reinterpret_cast<uintptr_t>(registers_.get()) % 64) % 64;
  predicates_.resize(static_cast<size_t>(f.predicates) * block_.warps);
  shared_.resize(launch.view.shared_bytes);
  shared_defined_.resize(launch.view.shared_bytes / 64 + 2);
  if (f.uses_wgmma) {
    wgmma_.resize(block_.warps);
    for (WgmmaState& state : wgmma_) state.slots.resize(f.slots);
    warpgroups_.resize((block_.warps + 3) / 4);
    block_.warpgroups = warpgroups_.data();
  }
  if (f.uses_async_copies || f.uses_wgmma) marks_.resize(launch.view.shared_bytes / 4 + 1);
  if (launch.races) races_ = make_race_block(*launch.races);
  const size_t watched = f.virtual_registers + size_t{f.predicates};
  if (launch.settings->check & kRegcheck) undefined_.resize(watched * block_.warps);
  const size_t depots = static_cast<size_t>(launch.view.depot_bytes) * 32;
  local_.resize(depots * block_.warps);
  const size_t depot_words = depots / 64 + 1;
  local_defined_.resize(depot_words * block_.warps);
  warps_.resize(block_.warps);
  block_.warp = warps_.data();
  block_.shared = shared_.data();
  block_.shared_defined = shared_defined_.data();
  block_.marks = marks_.empty() ? nullptr : marks_.data();
  block_.races = races_.get();
  block_.shared_begin = f.uses_reserved_shared ? kReservedRooms[0] : launch.view.shared_begin;
  block_.shared_bytes = launch.view.shared_bytes;
  for (uint32_t k = 0; k < block_.warps; ++k) {
    Warp& w = warps_[k];
    w.wgmma = f.uses_wgmma ? &wgmma_[k] : nullptr;
    w.regs = register_base_ + k * register_bytes_;
    w.preds = predicates_.data() + static_cast<size_t>(k) * f.predicates;
    w.block = &block_;
    w.worker = worker;
    w.function = &f;
    w.code = &f;
    w.local = local_.data() + k * depots;
    w.local_defined = local_defined_.data() + k * depot_words;
    w.index = k;
    if (!undefined_.empty()) w.undefined = undefined_.data() + k * watched;
    if (f.uses_stack) {
      calls_.push_back(make_call_stack());
      w.calls = calls_.back().get();
    }
    fill_constants(w.regs, launch, block_.window);
  }
}

void BlockRun::start(const uint32_t (&id)[3]) {
  const Launch& launch = *worker_->launch;
  const Function& f = *launch.function;
  const uint32_t* grid = launch.grid->grid;
  const uint64_t linear =
      id[0] + static_cast<uint64_t>(grid[0]) * (id[1] + static_cast<uint64_t>(grid[1]) * id[2]);
  block_.linear = linear;
  for (int k = 0; k < 3; ++k) block_.id[k] = id[k];
  block_.warps_done = 0;
  block_.executed = 0;
  block_.told = block_.waited = Milestone{};
  block_.random = mix(launch.settings->seed ^ mix(linear + 1));
  block_.marked = 0;
  std::fill(marks_.begin(), marks_.end(), uint16_t{0});
  block_.free_registers = 0;
  for (WgmmaState& state : wgmma_) state.reset();
  std::fill(warpgroups_.begin(), warpgroups_.end(), Warpgroup{});
  for (Barrier& b : block_.barriers) b = Barrier{};
  // Undefined memory looks like NaN in every format.
  const int poison = 0x7F;
  if (!shared_.empty()) std::memset(shared_.data(), poison, shared_.size());
  if (!local_.empty()) std::memset(local_.data(), poison, local_.size());
  std::fill(shared_defined_.begin(), shared_defined_.end(), 0);
  if (f.uses_reserved_shared) {  // the system has written something there
    std::fill_n(shared_defined_.begin(), kReservedEnd / 64, ~uint64_t{0});
  }
  std::fill(local_defined_.begin(), local_defined_.end(), 0);
  for (uint32_t k = 0; k < block_.warps; ++k) {
    Warp& w = warps_[k];
    std::memset(w.preds, 0, f.predicates * sizeof(uint32_t));
    w.preds[kPredTrue] = ~0u;
    if (w.undefined) {
      std::fill_n(w.undefined, f.virtual_registers + f.predicates, ~0u);
      std::fill_n(w.undefined + f.virtual_registers, kPredFirst, 0u);
    }
    if (f.reads_undefined_registers) {
      std::memset(w.regs, poison, register_bytes_);
      fill_constants(w.regs, launch, block_.window);
    }
    const uint32_t lanes = std::min(32u, block_.threads - 32 * k);
    w.live = lanes == 32 ? ~0u : (1u << lanes) - 1;
    w.stop = w.blocked = false;
    w.cluster_pending = w.cluster_parity = 0;
    w.register_limit = 0;
    w.spurious = ~0ull;
    w.executed = 0;
    w.at_grid_control = false;
    if (w.calls) reset_calls(w);
    w.state = WarpState::runnable;
    w.strand_count = 1;
    w.current = 0;
    w.strands[0] = Strand{};
    w.strands[0].mask = w.live;
    w.node_end = 0;
  }
  start_races(block_);
}

}  // namespace sim
