// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The replay executes the streams of all ranks, one random enabled action at a time.
#include <algorithm>

#include "tests/collective/fakes.h"

namespace fakes {
namespace {

using Queues = std::vector<std::pair<int, std::deque<Op>*>>;  // rank and stream

bool all_done(const Op& op) {
  for (const Message& m : op.messages) {
    if (!m.done) return false;
  }
  return true;
}

// Messages between two hops that both have begun match in order of posting.
struct Match {
  Message *from, *to;
  int receiver;
};
std::vector<Match> matches(const Queues& queues) {
  std::vector<Match> out;
  for (const auto& [sender, from] : queues) {
    if (from->empty() || from->front().kind != Op::hop) continue;
    for (Message& sent : from->front().messages) {
      if (!sent.sends || sent.done) continue;
      for (const auto& [receiver, to] : queues) {
        if (receiver != sent.peer || to->empty() || to->front().kind != Op::hop) continue;
        for (Message& wanted : to->front().messages) {
          if (wanted.sends || wanted.done || wanted.peer != sender) continue;
          if (wanted.bytes == sent.bytes) out.push_back({&sent, &wanted, receiver});
          break;
        }
      }
    }
  }
  return out;
}

}  // namespace

Outcome replay(std::vector<Rank>& ranks, std::mt19937& random, bool lazy_messages) {
  Outcome out;
  Queues queues;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (auto& [stream, ops] : ranks[r].streams) queues.push_back({static_cast<int>(r), &ops});
  }
  std::set<uint64_t> records = {0};
  for (;;) {
    std::vector<size_t> ready;
    bool left = false;
    for (size_t q = 0; q < queues.size(); ++q) {
      if (queues[q].second->empty()) continue;
      left = true;
      const Op& op = queues[q].second->front();
      if (op.kind == Op::wait && records.count(op.record_id) == 0) continue;
      if (op.kind == Op::hop && !all_done(op)) continue;
      ready.push_back(q);
    }
    std::vector<Match> copies = matches(queues);
    if (lazy_messages && !ready.empty()) copies.clear();
    if (ready.empty() && copies.empty()) {
      out.finished = !left;
      return out;
    }
    const size_t pick = random() % (ready.size() + copies.size());
    if (pick >= ready.size()) {
      const Match& move = copies[pick - ready.size()];
      std::memcpy(move.to->data, move.from->data, move.from->bytes);
      move.from->done = move.to->done = true;
      out.events.push_back({Event::transfer, move.receiver, {}});
      continue;
    }
    auto& [rank, ops] = queues[ready[pick]];
    if (ops->front().kind == Op::record) records.insert(ops->front().record_id);
    if (ops->front().kind == Op::step) {
      out.events.push_back({Event::step, rank, ops->front().name});
      ops->front().effect();
    }
    ops->pop_front();
  }
}

}  // namespace fakes
