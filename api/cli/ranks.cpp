// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Executes on one thread per rank, each with its own group, all on one context.
#include <algorithm>
#include <barrier>
#include <exception>
#include <mutex>
#include <thread>

#include "api/cli/execute.h"
#include "api/cli/inputs/slices.h"

namespace lathe::cli {
namespace {

// The ranks share this. The first failure in time is the one to tell: those after it are mostly
// ranks that miss their partner.
class Crew {
 public:
  explicit Crew(int world) : barrier_(world) {}

  template <typename Body>
  void guarded(int rank, Body body) {
    try {
      body();
    } catch (const Failure& failure) {
      // Every rank makes the same objection to bad input, so a rank's number would mislead.
      const std::string prefix =
          failure.code == kBadInput ? "" : "rank " + std::to_string(rank) + ": ";
      note(std::make_exception_ptr(Failure(failure.code, prefix + failure.what())));
    } catch (...) {
      note(std::current_exception());
    }
  }

  // True if all ranks came here without a failure.
  bool all_well() {
    barrier_.arrive_and_wait();
    std::lock_guard lock(mutex_);
    return first_ == nullptr;
  }

  void rethrow() {
    if (first_) std::rethrow_exception(first_);
  }

  std::mutex& mutex() { return mutex_; }

 private:
  void note(std::exception_ptr failure) {
    std::lock_guard lock(mutex_);
    if (!first_) first_ = failure;
  }

  std::barrier<> barrier_;
  std::mutex mutex_;
  std::exception_ptr first_;
};

void keep_slowest(const StageTimes& rank, StageTimes* times) {
  times->prepare = std::max(times->prepare, rank.prepare);
  times->upload = std::max(times->upload, rank.upload);
  times->run = std::max(times->run, rank.run);
  times->download = std::max(times->download, rank.download);
}

TensorMap empty_outputs(const Problem& problem, const TensorMap& inputs) {
  TensorMap outputs;
  for (const auto& [name, spec] : problem.outputs) outputs[name] = empty_tensor(spec);
  for (const auto& [name, spec] : problem.inputs) {
    if (is_changed(problem, name)) outputs[name] = empty_tensor(spec);
  }
  for (const auto& [name, source] : problem.aliases) outputs[name] = inputs.at(source);
  return outputs;
}

struct Shared {
  lathe_context* context;
  const Problem& problem;
  const TensorMap& inputs;
  const Ranks& ranks;
  char id[LATHE_UNIQUE_ID_BYTES];
  TensorMap* outputs;
  Report* report;
  StageTimes* times;
};

void run_rank(const Shared& shared, Crew* crew, int rank) {
  Group group;
  Shard shard;
  Seat seat;
  std::unique_ptr<PartRun> part;
  crew->guarded(rank, [&] {
    group = made<Group>(lathe_group_create, shared.context, shared.id, shared.ranks.count, rank, 0);
    shard = make_shard(shared.problem, shared.inputs, shared.ranks, rank);
    seat = {group.get(),
            shard.get(),
            rank,
            shared.ranks.count,
            shared.ranks.method,
            intervals_of(shard.get(), LATHE_QUERIES),
            intervals_of(shard.get(), LATHE_KEYS),
            {}};
    seat.chunks = chunks_of(shared.problem, shared.inputs, seat.queries);
    part = std::make_unique<PartRun>(shared.context, shared.problem, seat);
    part->prepare();
    {
      std::lock_guard lock(crew->mutex());
      shared.report->add(part->plan());
    }
    part->upload(shared.inputs);
  });
  if (crew->all_well()) {
    crew->guarded(rank, [&] {
      try {
        part->prepare_shard();
      } catch (const Failure& failure) {
        // Every rank makes the same objection to bad input, once it is through with the others.
        if (failure.code != kBadInput) lathe_group_abort(group.get());
        throw;
      }
    });
  }
  if (crew->all_well()) {
    crew->guarded(rank, [&] {
      try {
        part->run();
      } catch (...) {
        // The others would wait for this rank until their time is up.
        lathe_group_abort(group.get());
        throw;
      }
    });
  }
  if (crew->all_well()) {
    crew->guarded(rank, [&] {
      part->download(shared.inputs, shared.outputs);
      std::lock_guard lock(crew->mutex());
      keep_slowest(part->times(), shared.times);
    });
  }
  part.reset();  // before the group that its plan refers to
}

}  // namespace

TensorMap execute(lathe_context* context, const Problem& problem, const TensorMap& inputs,
                  const Ranks& ranks, Report* report, StageTimes* times) {
  TensorMap outputs = empty_outputs(problem, inputs);
  if (ranks.count == 0) {
    PartRun part(context, problem, Seat{});
    part.prepare();
    report->add(part.plan());
    part.upload(inputs);
    part.run();
    part.download(inputs, &outputs);
    keep_slowest(part.times(), times);
    return outputs;
  }
  Shared shared{context, problem, inputs, ranks, {}, &outputs, report, times};
  choose_nccl_for_threads(context);
  check(lathe_unique_id(context, shared.id));
  Crew crew(ranks.count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.count; ++rank) {
    threads.emplace_back([&, rank] { run_rank(shared, &crew, rank); });
  }
  for (std::thread& thread : threads) thread.join();
  crew.rethrow();
  return outputs;
}

}  // namespace lathe::cli
