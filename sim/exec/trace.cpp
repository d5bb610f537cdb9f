// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/trace.h"

#include <algorithm>
#include <utility>

#include "sim/exec/warp.h"
#include "sim/ptx/code.h"

namespace sim {
namespace {

bool touches(Class cls) {
  return cls == Class::memory || cls == Class::atomic || cls == Class::async ||
         cls == Class::barrier || cls == Class::tensor;
}

uint64_t wavefronts_of(const Worker& worker) {
  return worker.tally.shared_load.wavefronts + worker.tally.shared_store.wavefronts;
}

}  // namespace

bool leaves_effect(const Function& function, uint32_t pc) {
  const Inst& in = function.code[pc];
  return in.kind != Kind::simple && touches(function.infos[in.info].cls);
}

void Recorder::resume(const Worker& worker) {
  wavefronts_ = wavefronts_of(worker);
  forget();
}

void Recorder::start(const Block& block) {
  if (blocks_.size() <= block.rank) blocks_.resize(block.rank + 1);
  BlockTrace& trace = blocks_[block.rank];
  trace = {};
  std::copy(block.id, block.id + 3, trace.id);
  trace.linear = block.linear;
  trace.rank = block.rank;
  trace.warps.resize(block.warps);
}

std::vector<BlockTrace> Recorder::take(const Cluster& cluster) {
  for (BlockTrace& trace : blocks_) {
    trace.executed = cluster.blocks[trace.rank]->executed;
    trace.cut = full();
  }
  return std::exchange(blocks_, {});
}

void Recorder::turn(const Warp& warp, uint32_t first, uint32_t end, uint32_t lanes) {
  if (first == end) return;
  BlockTrace& trace = blocks_[warp.block->rank];
  trace.recorded += end - first;
  instructions_ += end - first;
  auto& runs = trace.warps[warp.index].runs;
  if (!runs.empty() && runs.back().first + runs.back().count == first &&
      runs.back().lanes == lanes) {
    runs.back().count += end - first;
    return;
  }
  runs.push_back({first, end - first, lanes});
  ++entries_;
}

void Recorder::step(const Warp& warp, uint32_t pc, uint32_t lanes) {
  const InstInfo& info = function_->infos[function_->code[pc].info];
  const uint64_t wavefronts = wavefronts_of(*warp.worker);
  if (touches(info.cls)) {
    WarpTrace& trace = blocks_[warp.block->rank].warps[warp.index];
    now_.pc = pc;
    now_.lanes = lanes;
    now_.wavefronts = static_cast<uint32_t>(wavefronts - wavefronts_);
    now_.first_run = static_cast<uint32_t>(trace.sectors.size());
    now_.runs = static_cast<uint32_t>(now_sectors_.size());
    trace.sectors.insert(trace.sectors.end(), now_sectors_.begin(), now_sectors_.end());
    now_.first_signal = static_cast<uint32_t>(trace.signals.size());
    now_.signals = static_cast<uint32_t>(now_signals_.size());
    trace.signals.insert(trace.signals.end(), now_signals_.begin(), now_signals_.end());
    trace.effects.push_back(now_);
    entries_ += 1 + now_sectors_.size() + now_signals_.size();
  }
  wavefronts_ = wavefronts;
  forget();
}

void Recorder::forget() {
  now_ = {};
  now_.barrier = kNoBarrier;
  now_sectors_.clear();
  now_signals_.clear();
}

void Recorder::sectors(uint64_t first, uint32_t count) {
  if (!now_sectors_.empty()) {
    SectorRun& last = now_sectors_.back();
    if (first >= last.first && first <= last.first + last.count) {
      last.count = std::max(last.count, static_cast<uint32_t>(first + count - last.first));
      return;
    }
  }
  now_sectors_.push_back({first, count});
}

// A warp touches a sector once, whichever lanes want it.
void Recorder::lanes(const uint64_t* addresses, uint32_t exec, uint32_t size) {
  uint64_t wanted[64];
  size_t count = 0;
  for (uint32_t rest = exec; rest; rest &= rest - 1) {
    const uint64_t address = addresses[__builtin_ctz(rest)];
    wanted[count++] = address >> 5;
    if ((address + size - 1) >> 5 != address >> 5) wanted[count++] = (address + size - 1) >> 5;
  }
  std::sort(wanted, wanted + count);
  for (size_t k = 0; k < count; ++k) sectors(wanted[k], 1);
}

void Recorder::barrier(uint64_t key, uint64_t phase, uint32_t count) {
  now_.barrier = key;
  now_.phase = phase;
  now_.count += count;
}

void Recorder::signal(uint64_t key, uint64_t phase) { now_signals_.push_back({key, phase}); }

void trace_turn(const Warp& warp, uint32_t first, uint32_t end, uint32_t lanes) {
  warp.worker->recorder->turn(warp, first, end, lanes);
}
void trace_step(const Warp& warp, uint32_t pc, uint32_t lanes) {
  warp.worker->recorder->step(warp, pc, lanes);
}
void trace_forget(const Warp& warp) { warp.worker->recorder->forget(); }
void trace_lanes(const Warp& warp, const uint64_t* addresses, uint32_t exec, uint32_t size) {
  warp.worker->recorder->lanes(addresses, exec, size);
}

}  // namespace sim
