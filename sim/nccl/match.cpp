// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file finds partners: collectives by their number on the communicator, sends and receives in
// order per pair of ranks. A call that does not fit its partners, or whose partner does not come,
// ends the communicator.
#include <algorithm>

#include "sim/nccl/state.h"

namespace sim::nccl {
namespace {

std::string who(const Part& part) {
  return "rank " + std::to_string(part.rank) + " calls " + describe(part.call);
}

bool agree(const Call& a, const Call& b) {
  return a.kind == b.kind && a.count == b.count && a.type == b.type &&
         (!is_reduction(a.kind) || a.op == b.op) && (!is_rooted(a.kind) || a.root == b.root);
}

void start(State& state, Clique& clique, std::vector<Part> parts) {
  auto task = std::make_shared<Task>();
  task->clique = &clique;
  task->parts = std::move(parts);
  state.tasks.push_back(std::move(task));
  state.work.notify_all();
}

void match_collective(State& state, Clique& clique, uint64_t number, Part part) {
  std::vector<Part>& parts = clique.collectives[number];
  if (!parts.empty() && !agree(parts[0].call, part.call)) {
    fail_clique(state, clique, ncclInvalidUsage,
                "mismatch in collective " + std::to_string(number) +
                    " of the communicator: " + who(parts[0]) + ", " + who(part));
    return;
  }
  parts.push_back(std::move(part));
  if (static_cast<int>(parts.size()) < clique.size()) return;
  std::vector<Part> all = std::move(parts);
  clique.collectives.erase(number);
  std::sort(all.begin(), all.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; });
  start(state, clique, std::move(all));
}

void match_pair(State& state, Clique& clique, Part part) {
  const bool sends = part.call.kind == Kind::send;
  const std::pair<int, int> key =
      sends ? std::pair(part.rank, part.call.root) : std::pair(part.call.root, part.rank);
  std::deque<Part>& mine = sends ? clique.sends[key] : clique.recvs[key];
  std::deque<Part>& theirs = sends ? clique.recvs[key] : clique.sends[key];
  if (theirs.empty()) {
    mine.push_back(std::move(part));
    return;
  }
  Part other = std::move(theirs.front());
  theirs.pop_front();
  if (other.call.count != part.call.count || other.call.type != part.call.type) {
    fail_clique(state, clique, ncclInvalidUsage,
                "mismatch between a send and its receive: " + who(other) + ", " + who(part));
    return;
  }
  std::vector<Part> both;
  both.push_back(sends ? std::move(part) : std::move(other));
  both.push_back(sends ? std::move(other) : std::move(part));
  start(state, clique, std::move(both));  // the sender first
}

// Returns the rank the part waits for, for the report; -1 if it lacks none.
int missing_rank(const Clique& clique, const std::vector<Part>& parts) {
  for (int rank = 0; rank < clique.size(); ++rank) {
    const bool here = std::any_of(parts.begin(), parts.end(),
                                  [&](const Part& part) { return part.rank == rank; });
    if (!here) return rank;
  }
  return -1;
}

std::string state_of(const Clique& clique, int rank) {
  const ncclComm* comm = clique.ranks[static_cast<size_t>(rank)];
  const std::string name = "rank " + std::to_string(rank);
  if (comm == nullptr) return name + " has destroyed its communicator";
  return comm->last.empty() ? name + " has called nothing" : name + " last called " + comm->last;
}

void gone(State& state, Clique& clique, const Part& part, int partner) {
  fail_clique(state, clique, ncclRemoteError,
              who(part) + ", but " + state_of(clique, partner) + " and can no longer take part");
}

void expired(State& state, Clique& clique, const Part& part, int partner) {
  fail_clique(state, clique, ncclRemoteError,
              who(part) + " and has waited " + std::to_string(timeout().count()) + " ms for rank " +
                  std::to_string(partner) + "; " + state_of(clique, partner));
}

// The oldest unmatched part and the rank it lacks.
struct Oldest {
  const Part* part = nullptr;
  int partner = 0;
  void offer(const Part& candidate, int rank) {
    if (part != nullptr && part->since <= candidate.since) return;
    part = &candidate;
    partner = rank;
  }
};

Oldest oldest_of(const Clique& clique) {
  Oldest oldest;
  for (const auto& [number, parts] : clique.collectives) {
    if (!parts.empty()) oldest.offer(parts[0], missing_rank(clique, parts));
  }
  for (const auto& [key, parts] : clique.sends) {
    if (!parts.empty()) oldest.offer(parts[0], key.second);
  }
  for (const auto& [key, parts] : clique.recvs) {
    if (!parts.empty()) oldest.offer(parts[0], key.first);
  }
  return oldest;
}

}  // namespace

void match(State& state, Clique& clique, Part part) {
  if (clique.error != ncclSuccess) {  // an earlier operation of the same group failed
    release(*part.launch);
    return;
  }
  if (is_pair(part.call.kind)) {
    match_pair(state, clique, std::move(part));
  } else {
    ncclComm* comm = clique.ranks[static_cast<size_t>(part.rank)];
    const uint64_t number = comm->collectives++;
    match_collective(state, clique, number, std::move(part));
  }
  if (clique.error == ncclSuccess) check_gone(state, clique);
}

void check_gone(State& state, Clique& clique) {
  for (const auto& [number, parts] : clique.collectives) {
    for (int rank = 0; rank < clique.size() && !parts.empty(); ++rank) {
      const bool here = std::any_of(parts.begin(), parts.end(),
                                    [&](const Part& part) { return part.rank == rank; });
      if (!here && clique.ranks[static_cast<size_t>(rank)] == nullptr) {
        return gone(state, clique, parts[0], rank);
      }
    }
  }
  for (const auto& [key, parts] : clique.sends) {
    if (!parts.empty() && clique.ranks[static_cast<size_t>(key.second)] == nullptr) {
      return gone(state, clique, parts[0], key.second);
    }
  }
  for (const auto& [key, parts] : clique.recvs) {
    if (!parts.empty() && clique.ranks[static_cast<size_t>(key.first)] == nullptr) {
      return gone(state, clique, parts[0], key.first);
    }
  }
}

Clock::time_point check_timeouts(State& state) {
  Clock::time_point next = Clock::time_point::max();
  for (const std::shared_ptr<Clique>& clique : state.cliques) {
    const Oldest oldest = oldest_of(*clique);
    if (oldest.part == nullptr) continue;
    const Clock::time_point end = oldest.part->since + timeout();
    if (end <= Clock::now()) {
      expired(state, *clique, *oldest.part, oldest.partner);
    } else {
      next = std::min(next, end);
    }
  }
  return next;
}

namespace {

// Returns whether `later` comes after a launch that is still held in the same stream.
bool comes_after(const Launch& later, const Launch& earlier) {
  if (earlier.passed == nullptr) return false;  // a replay, whose stream is not known
  if (later.stream == CU_STREAM_PER_THREAD && earlier.thread != later.thread) return false;
  return earlier.order < later.order && !earlier.released && earlier.stream == later.stream &&
         earlier.comm->context == later.comm->context;
}

// Returns the matched tasks that must end before `task` can begin.
std::vector<Task*> blockers(State& state, const Task& task) {
  std::vector<Task*> found;
  for (const std::shared_ptr<Task>& other : state.tasks) {
    for (const Part& part : task.parts) {
      if (part.launch->is_ready) continue;
      for (const Part& theirs : other->parts) {
        if (comes_after(*part.launch, *theirs.launch)) found.push_back(other.get());
      }
    }
  }
  return found;
}

// Depth-first search for a way back to `start`.
bool leads_to(State& state, Task& from, const Task& start, std::set<Task*>& seen) {
  for (Task* next : blockers(state, from)) {
    if (next == &start) return true;
    if (seen.insert(next).second && leads_to(state, *next, start, seen)) return true;
  }
  return false;
}

}  // namespace

void check_deadlock(State& state) {
  for (const std::shared_ptr<Task>& task : state.tasks) {
    if (task->running) continue;
    std::set<Task*> seen;
    if (!leads_to(state, *task, *task, seen)) continue;
    std::string text = "deadlock: " + who(task->parts[0]);
    for (size_t at = 1; at < task->parts.size(); ++at) text += ", " + who(task->parts[at]);
    fail_clique(state, *task->clique, ncclInvalidUsage,
                text +
                    "; they wait for each other through the order of their streams (should "
                    "they be in one group?)");
    return;
  }
}

}  // namespace sim::nccl
