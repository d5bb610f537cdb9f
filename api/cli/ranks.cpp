// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Executes on one thread per rank, each with its own group, all on one context.
#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>

#include "api/cli/execute.h"

namespace lathe::cli {
namespace {

// The ranks share this. The first failure in time is the one to tell: those after it are mostly
// ranks that miss their partner.
class Crew {
 public:
  explicit Crew(int world) : barrier_(world, Decide{this}) {}

  // Does a step of a rank if all went well before, and waits for the others. Every rank comes to
  // every step.
  template <typename Body>
  void step(int rank, Body body) {
    try {
      if (all_well_) body();
    } catch (const Failure& failure) {
      // Every rank makes the same objection to bad input, so a rank's number would mislead.
      const std::string prefix = failure.code == kBadInput ? "" : text("rank ", rank, ": ");
      note(std::make_exception_ptr(Failure(failure.code, prefix + failure.what())));
    } catch (...) {
      note(std::current_exception());
    }
    barrier_.arrive_and_wait();
  }

  void rethrow() {
    if (first_) std::rethrow_exception(first_);
  }

  std::mutex& mutex() { return mutex_; }

 private:
  // Decides for all ranks while all of them wait: a rank that went on without one that knew of a
  // failure already would wait for it in vain.
  struct Decide {
    Crew* crew;
    void operator()() noexcept { crew->all_well_ = crew->first_ == nullptr; }
  };

  void note(std::exception_ptr failure) {
    std::lock_guard lock(mutex_);
    if (!first_) first_ = failure;
  }

  std::barrier<Decide> barrier_;
  bool all_well_ = true;
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

// 0 without the option, and for what is no number, which the library refuses.
int64_t chunk_size(const Problem& problem) {
  return std::strtoll(setting(problem, "chunk_size").c_str(), nullptr, 10);
}

// Returns the offsets that cut chunks, among all tokens of a row; empty: no states are asked for.
std::vector<int64_t> cuts_of_chunks(const Problem& problem, const TensorMap& inputs) {
  if (chunk_size(problem) <= 0 || !problem.outputs.contains("chunk_states")) return {};
  if (inputs.contains("cu_seqlens")) return integers(inputs, "cu_seqlens");
  return {0, problem.extents.at("T")};
}

// Moves the bounds of all ranks' intervals to the nearest starts of chunks, so that no chunk is
// cut.
std::vector<Intervals> on_chunks(const Problem& problem, const std::vector<int64_t>& cuts,
                                 std::vector<Intervals> ranks) {
  const int64_t size = chunk_size(problem);
  for (Intervals& intervals : ranks) {
    for (auto& [begin, end] : intervals) {
      for (int64_t* bound : {&begin, &end}) {
        const auto next = std::upper_bound(cuts.begin(), cuts.end(), *bound);
        if (next == cuts.end()) continue;
        const int64_t low = *bound - (*bound - *(next - 1)) % size;
        const int64_t high = std::min(low + size, *next);
        *bound = *bound - low <= high - *bound ? low : high;
      }
    }
  }
  return ranks;
}

// Returns the chunks of these tokens among all.
Intervals chunks_of(const Problem& problem, const TensorMap& inputs, const Intervals& tokens) {
  const std::vector<int64_t> cuts = cuts_of_chunks(problem, inputs);
  const int64_t size = chunk_size(problem);
  const auto before = [&](int64_t until) {
    int64_t chunks = 0;
    for (size_t n = 1; n < cuts.size(); ++n) {
      const int64_t count = std::min(cuts[n], until) - cuts[n - 1];
      if (count > 0) chunks += (count + size - 1) / size;
    }
    return chunks;
  };
  Intervals out;
  for (const auto& [begin, end] : tokens) {
    if (!cuts.empty()) out.emplace_back(before(begin), before(end));
  }
  return out;
}

Intervals intervals_of(const lathe_shard* shard, lathe_axis axis) {
  const int64_t* begin_end = nullptr;
  size_t count = 0;
  check(lathe_shard_intervals(shard, axis, &begin_end, &count));
  Intervals out;
  for (size_t i = 0; i < count; ++i) out.emplace_back(begin_end[2 * i], begin_end[2 * i + 1]);
  return out;
}

// Makes the shard of one rank. `ranges`: a table in place of the balance, unless it is empty.
Shard make_shard(lathe_shard_options options, const std::vector<Intervals>& ranges, int rank) {
  std::vector<int64_t> flat;
  std::vector<size_t> counts;
  for (const Intervals& own : ranges) {
    counts.push_back(own.size());
    for (const auto& [first, last] : own) flat.insert(flat.end(), {first, last});
  }
  flat.push_back(0);  // so that a table of no range has an address
  options.rank = rank;
  if (!ranges.empty()) options.ranges = flat.data(), options.range_counts = counts.data();
  return made<Shard>(lathe_shard_create_with, &options);
}

// Returns the shard of one rank, cut as the lengths and offsets among `inputs` say. Where states of
// chunks are asked for, and the caller has no table, no chunk is cut.
Shard make_shard(const Problem& problem, const TensorMap& inputs, const Ranks& ranks, int rank) {
  std::vector<int64_t> offsets = integers(inputs, "cu_seqlens");
  if (offsets.empty()) offsets = integers(inputs, "cu_seqlens_q");
  const std::vector<int64_t> key_offsets = integers(inputs, "cu_seqlens_k");
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = ranks.count;
  options.balance = ranks.balance;
  options.length = extent_of(problem, {"T", "Sq", "Tq"}, -1);
  options.key_length = extent_of(problem, {"Sk", "Tk"}, -1);
  if (!offsets.empty()) options.cu_seqlens = offsets.data();
  if (!key_offsets.empty()) options.cu_seqlens_k = key_offsets.data();
  options.offsets = offsets.size();
  const std::vector<int64_t> cuts = cuts_of_chunks(problem, inputs);
  if (cuts.empty() || !ranks.ranges.empty()) return make_shard(options, ranks.ranges, rank);
  std::vector<Intervals> held;
  for (int each = 0; each < ranks.count; ++each) {
    held.push_back(intervals_of(make_shard(options, {}, each).get(), LATHE_QUERIES));
  }
  options.balance = LATHE_BALANCE_NONE;
  return make_shard(options, on_chunks(problem, cuts, std::move(held)), rank);
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

Seat take_seat(const Shared& shared, int rank) {
  const auto& [context, problem, inputs, ranks, id, outputs, report, times] = shared;
  Seat seat;
  seat.group = made<Group>(lathe_group_create, context, id, ranks.count, rank, 0);
  seat.shard = make_shard(problem, inputs, ranks, rank);
  seat.rank = rank, seat.world = ranks.count, seat.method = ranks.method;
  seat.queries = intervals_of(seat.shard.get(), LATHE_QUERIES);
  seat.keys = intervals_of(seat.shard.get(), LATHE_KEYS);
  seat.chunks = chunks_of(problem, inputs, seat.queries);
  return seat;
}

void run_rank(const Shared& shared, Crew* crew, int rank) {
  std::unique_ptr<PartRun> part;
  crew->step(rank, [&] {
    part = std::make_unique<PartRun>(shared.context, shared.problem, take_seat(shared, rank));
    part->prepare();
    {
      std::lock_guard lock(crew->mutex());
      shared.report->add(part->plan());
    }
    part->upload(shared.inputs);
  });
  crew->step(rank, [&] {
    try {
      part->prepare_shard();
    } catch (const Failure& failure) {
      // Every rank makes the same objection to bad input, once it is through with the others.
      if (failure.code != kBadInput) part->abort();
      throw;
    }
  });
  crew->step(rank, [&] {
    try {
      part->run();
    } catch (...) {
      // The others would wait for this rank until their time is up.
      part->abort();
      throw;
    }
  });
  crew->step(rank, [&] {
    part->download(shared.inputs, shared.outputs);
    std::lock_guard lock(crew->mutex());
    keep_slowest(part->times(), shared.times);
  });
}

}  // namespace

TensorMap execute(lathe_context* context, const Problem& problem, const TensorMap& inputs,
                  const Ranks& ranks, Report* report, StageTimes* times) {
  TensorMap outputs = empty_outputs(problem, inputs);
  if (ranks.count == 0) {
    PartRun part(context, problem);
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
