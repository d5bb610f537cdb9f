// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/order.h"

#include <algorithm>
#include <utility>

namespace sim::clock {
namespace {

constexpr int kBoards = 6;
constexpr size_t kWindow = 96;  // instructions among which ptxas finds one that is ready

double fixed_latency(const Op& op, const Machine& machine) {
  switch (op.unit) {
    case Unit::alu:
    case Unit::heavy:
      return 5;
    case Unit::half:
      return machine.half_latency;
    case Unit::fp64:
      return 8;
    default:
      return 4;
  }
}

bool overlaps(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& name) {
    return std::find(b.begin(), b.end(), name) != b.end();
  });
}

}  // namespace

// An instruction may go before those that neither write what it reads nor touch what it writes.
bool Scheduler::ready(const std::vector<Draft>& block, const std::vector<bool>& done,
                      size_t at) const {
  const Draft& d = block[at];
  for (size_t k = at > kWindow ? at - kWindow : 0; k < at; ++k) {
    if (done[k]) continue;
    const Draft& e = block[k];
    if ((d.stays && e.stays) || overlaps(e.writes, d.reads) || overlaps(e.writes, d.writes) ||
        overlaps(e.reads, d.writes)) {
      return false;
    }
  }
  return true;
}

double Scheduler::time_of(const Draft& draft) const {
  double time = now_;
  for (const std::string& name : draft.reads) {
    const auto found = values_.find(name);
    if (found != values_.end()) time = std::max(time, found->second.ready);
  }
  return time;
}

void Scheduler::emit(Draft& draft, std::vector<Op>* ops) {
  double begin = now_;
  for (const std::string& name : draft.reads) {
    const auto found = values_.find(name);
    if (found == values_.end()) continue;
    if (found->second.board >= 0) {
      draft.op.waits |= static_cast<uint8_t>(1u << found->second.board);
    } else {
      begin = std::max(begin, found->second.ready);
    }
  }
  if (!ops->empty() && begin > now_) {
    ops->back().stall = static_cast<uint8_t>(std::min(255.0, ops->back().stall + begin - now_));
  }
  now_ = begin + 1;
  Value value = {begin + fixed_latency(draft.op, machine_), -1};
  const bool late = draft.op.kind == OpKind::load || draft.op.kind == OpKind::atomic;
  if (late && !draft.writes.empty()) {
    value.board = next_board_;
    draft.op.writes = static_cast<uint8_t>(next_board_);
    next_board_ = (next_board_ + 1) % kBoards;
    value.ready =
        begin + (draft.op.unit == Unit::global ? machine_.l2_latency : machine_.shared_latency);
  }
  if (draft.op.unit == Unit::tensor) value.ready = begin + machine_.mma_latency;
  for (const std::string& name : draft.writes) values_[name] = value;
  draft.op.stall = 1;
  ops->push_back(std::move(draft.op));
}

void Scheduler::add(std::vector<Draft> block, std::vector<Op>* ops) {
  std::vector<bool> done(block.size(), false);
  size_t first = 0;
  for (size_t count = 0; count < block.size(); ++count) {
    while (done[first]) ++first;
    size_t best = first;
    double soonest = time_of(block[first]);
    const size_t end = std::min(block.size(), first + kWindow);
    for (size_t at = first + 1; at < end && soonest > now_; ++at) {
      if (done[at] || !ready(block, done, at)) continue;
      if (block[at].op.kind == OpKind::branch || block[at].op.kind == OpKind::exit) break;
      const double time = time_of(block[at]);
      if (time < soonest) soonest = time, best = at;
    }
    done[best] = true;
    emit(block[best], ops);
  }
}

}  // namespace sim::clock
