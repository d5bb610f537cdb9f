// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

#include "tests/harness/graph_client.h"

namespace apitest {
namespace {

// The dimension of a tensor that counts tokens, and whether these are keys.
struct Axis {
  int dimension = -1;  // -1: none
  bool keys = false;
};
Axis axis_of(const Call& call, const std::string& name) {
  const auto dims = dims_of(call.op, name, call.tensors.at(name).shape.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    for (const char* each : {"Sq", "Tq", "T"}) {
      if (dims[i] == each) return {static_cast<int>(i), false};
    }
    for (const char* each : {"Sk", "Tk"}) {
      if (dims[i] == each) return {static_cast<int>(i), true};
    }
  }
  return {};
}

int64_t tokens_of(const Intervals& intervals) {
  int64_t sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

// Calls `copy(whole, local, count)` with offsets of neighbouring elements.
template <typename Copy>
void each_piece(const std::vector<int64_t>& shape, int axis, const Intervals& intervals,
                const Copy& copy) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[static_cast<size_t>(i)];
  for (size_t i = static_cast<size_t>(axis) + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t whole = shape[static_cast<size_t>(axis)] * inner;
  int64_t local = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const auto& [begin, end] : intervals) {
      const int64_t count = (end - begin) * inner;
      copy(o * whole + begin * inner, local, count);
      local += count;
    }
  }
}

// Tokens of the whole axis, -1 where no tensor has it; and the offsets of packed sequences.
int64_t length_of(const Call& call, bool keys) {
  for (const auto& [name, tensor] : call.tensors) {
    const Axis axis = axis_of(call, name);
    if (axis.dimension >= 0 && axis.keys == keys) {
      return tensor.shape[static_cast<size_t>(axis.dimension)];
    }
  }
  return -1;
}
std::vector<int64_t> offsets_in(const Call& call, const std::vector<const char*>& names) {
  for (const char* name : names) {
    const auto found = call.tensors.find(name);
    if (found == call.tensors.end()) continue;
    return {found->second.values.begin(), found->second.values.end()};
  }
  return {};
}

Shard make_shard(const Call& call, const Ranks& ranks, int rank) {
  const auto data = [](const std::vector<int64_t>& values) {
    return values.empty() ? nullptr : values.data();
  };
  const auto cu = offsets_in(call, {"cu_seqlens_q", "cu_seqlens"});
  const auto cu_k = offsets_in(call, {"cu_seqlens_k"});
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = ranks.world, options.rank = rank, options.balance = ranks.balance;
  options.length = length_of(call, false), options.key_length = length_of(call, true);
  options.cu_seqlens = data(cu), options.cu_seqlens_k = data(cu_k), options.offsets = cu.size();
  options.bounds = data(ranks.bounds);
  options.block_size = ranks.block_size;
  lathe_shard* made = nullptr;
  API(lathe_shard_create_with(&made, &options));
  return Shard(made);
}

Intervals intervals_of(const lathe_shard* shard, lathe_axis axis) {
  const int64_t* ends = nullptr;
  size_t count = 0;
  API(lathe_shard_intervals(shard, axis, &ends, &count));
  Intervals out;
  for (size_t i = 0; i < count; ++i) out.emplace_back(ends[2 * i], ends[2 * i + 1]);
  return out;
}

// A rank with its group, its part of the call and the plan of it.
class Rank {
 public:
  Rank(const Call& call, const Ranks& ranks, int rank, const char* id)
      : call_(call), ranks_(ranks), context_(make_context()) {
    lathe_group* group = nullptr;
    API(lathe_group_create(&group, context_.get(), id, ranks.world, rank, 20000));
    group_.reset(group);
    shard_ = make_shard(call, ranks, rank);
    queries = intervals_of(shard_.get(), LATHE_QUERIES);
    keys = intervals_of(shard_.get(), LATHE_KEYS);
  }
  void plan() {
    planned_ = std::make_unique<PlannedCall>(context_.get(), part(),
                                             Seat{group_.get(), shard_.get(), ranks_.flags});
  }
  // All runs in one thread, which must be the one that makes, launches and destroys a graph.
  void run() {
    std::unique_ptr<CapturedGraph> graph;
    for (int i = 0; i < ranks_.runs; ++i) {
      planned_->reset();
      if (ranks_.graph && !graph) {
        graph = std::make_unique<CapturedGraph>(context_.get(), planned_->stream(),
                                                [this] { planned_->enqueue(); });
      }
      graph ? graph->launch() : planned_->enqueue();
      planned_->synchronize();
      Outputs found = planned_->outputs();
      if (i > 0 && found != outputs) throw std::runtime_error("a run is not repeated");
      outputs = std::move(found);
    }
  }
  void abort() { (void)lathe_group_abort(group_.get()); }
  const Intervals& of(const Axis& axis) const { return axis.keys ? keys : queries; }
  const PlannedCall& planned() const { return *planned_; }

  Intervals queries, keys;
  Outputs outputs;

 private:
  Call part() const {
    Call own = call_;
    for (auto& [name, tensor] : own.tensors) {
      const Axis axis = axis_of(call_, name);
      if (axis.dimension < 0) continue;
      const CallTensor& whole = call_.tensors.at(name);
      tensor.shape[static_cast<size_t>(axis.dimension)] = tokens_of(of(axis));
      tensor.values.clear();
      if (whole.values.empty()) continue;
      each_piece(whole.shape, axis.dimension, of(axis), [&](int64_t from, int64_t, int64_t count) {
        const auto at = whole.values.begin() + from;
        tensor.values.insert(tensor.values.end(), at, at + count);
      });
    }
    return own;
  }

  const Call& call_;
  const Ranks& ranks_;
  Context context_;
  Group group_;
  Shard shard_;
  std::unique_ptr<PlannedCall> planned_;
};

using AllRanks = std::vector<std::unique_ptr<Rank>>;

// The whole of an output that every rank has a share of.
Values whole_of(const Call& call, bool summed, const AllRanks& ranks, const std::string& name) {
  const std::vector<int64_t>& shape = call.tensors.at(name).shape;
  const Axis axis = axis_of(call, name);
  if (axis.dimension >= 0) {
    Values all(Call::count(shape));
    for (const auto& rank : ranks) {
      const auto found = rank->outputs.find(name);
      if (found == rank->outputs.end()) continue;
      each_piece(shape, axis.dimension, rank->of(axis),
                 [&](int64_t whole, int64_t local, int64_t count) {
                   std::copy_n(found->second.begin() + local, count, all.begin() + whole);
                 });
    }
    return all;
  }
  Values all = ranks[0]->outputs.at(name);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const Values& own = ranks[r]->outputs.at(name);
    if (summed && own != all) throw std::runtime_error(name + " differs between ranks");
    for (size_t i = 0; !summed && i < all.size(); ++i) all[i] += own[i];
  }
  return all;
}

// The simulator's NCCL writes its hops into this file, which goes with the process.
const std::string& hops_path() {
  static const std::string path = [] {
    const auto made = std::filesystem::temp_directory_path() /
                      ("lathe-test-hops-" + std::to_string(getpid()) + ".jsonl");
    setenv("LATHE_SIM_NCCL_COUNTERS", made.c_str(), 1);
    std::atexit([] { std::remove(hops_path().c_str()); });
    return made.string();
  }();
  return path;
}

std::vector<HopCount> read_hops() {
  std::vector<HopCount> out;
  std::ifstream file(hops_path());
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    out.push_back({json.at("rank"), json.at("sends"), json.at("receives"), json.at("collectives"),
                   json.at("bytes_sent"), json.at("bytes_received")});
  }
  return out;
}

// Runs `body` for each rank in a thread of its own, and throws what the first of them threw. A rank
// that throws ends its group, or the others would wait for it.
void each_rank(AllRanks* ranks, const std::function<void(size_t)>& body) {
  std::vector<std::exception_ptr> errors(ranks->size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks->size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        body(r);
      } catch (...) {
        errors[r] = std::current_exception();
        if ((*ranks)[r]) (*ranks)[r]->abort();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

std::string Ranks::text() const {
  static const char* const kBalances[] = {"none", "head_tail", "per_document", "ptrr"};
  std::string out = "ranks " + std::to_string(world) + " " + kBalances[balance] + " flags " +
                    std::to_string(flags);
  for (const int64_t bound : bounds) out += " " + std::to_string(bound);
  return out;
}

RanksAnswer run_ranks(const Call& call, const Ranks& ranks) {
  hops_path();
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  AllRanks all(static_cast<size_t>(ranks.world));
  RanksAnswer answer;
  each_rank(&all, [&](size_t r) {
    auto rank = std::make_unique<Rank>(call, ranks, static_cast<int>(r), id.data());
    rank->plan();
    all[r] = std::move(rank);
  });
  check_no_findings();
  std::ofstream(hops_path()).close();
  each_rank(&all, [&](size_t r) { all[r]->run(); });
  answer.hops = read_hops();
  const Report report = take_report();
  answer.launches = report.launches.size();
  for (const std::string& finding : report.findings) throw std::runtime_error(finding);
  const bool summed = (ranks.flags & LATHE_REDUCE_PARAMETER_GRADS) != 0;
  for (const auto& [name, given] : call.tensors) {
    if (given.values.empty()) answer.outputs[name] = whole_of(call, summed, all, name);
  }
  for (const auto& rank : all) {
    answer.workspaces.push_back(rank->planned().workspace_bytes());
    answer.estimates.push_back(rank->planned().estimate());
    answer.queries.push_back(rank->queries), answer.keys.push_back(rank->keys);
  }
  each_rank(&all, [&](size_t r) { all[r].reset(); });
  return answer;
}

}  // namespace apitest
