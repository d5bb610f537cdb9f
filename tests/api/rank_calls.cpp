// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/rank_calls.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/api/graph_client.h"

namespace apitest {
namespace {

using Intervals = std::vector<std::pair<int64_t, int64_t>>;

struct OneRank {
  std::map<std::string, Values> outputs;
  Intervals queries, keys;
  size_t workspace = 0;
  std::exception_ptr error;
};

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string each; std::getline(in, each, by);) out.push_back(each);
  return out;
}

// The letters of a tensor's dimensions.
std::vector<std::string> letters_of(const AttentionCall& call, const std::string& name,
                                    size_t rank) {
  const lathe_operator_info* op = lathe_operator_find(call.op);
  for (size_t i = 0; i < op->tensor_count; ++i) {
    if (op->tensors[i].name != name) continue;
    for (const std::string& shape : split(op->tensors[i].shape, '|')) {
      auto letters = split(shape, ',');
      if (letters.size() == rank) return letters;
    }
  }
  throw std::logic_error(name + " has no shape of that rank");
}

// Where the tokens of a tensor are, and which axis they are of.
struct Axis {
  int dimension = -1;  // -1: none
  bool keys = false;
  const Intervals& of(const OneRank& rank) const { return keys ? rank.keys : rank.queries; }
};
Axis axis_of(const AttentionCall& call, const std::string& name, size_t rank) {
  const auto letters = letters_of(call, name, rank);
  for (size_t i = 0; i < letters.size(); ++i) {
    const std::string& letter = letters[i];
    if (letter == "Sq" || letter == "Tq") return {static_cast<int>(i), false};
    if (letter == "Sk" || letter == "Tk") return {static_cast<int>(i), true};
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

Intervals intervals_of(const lathe_shard* shard, lathe_axis axis) {
  const int64_t* pairs = nullptr;
  size_t count = 0;
  API(lathe_shard_intervals(shard, axis, &pairs, &count));
  Intervals out;
  for (size_t i = 0; i < count; ++i) out.emplace_back(pairs[2 * i], pairs[2 * i + 1]);
  return out;
}

Shard make_shard(const Ranks& ranks, int rank) {
  const auto data = [](const std::vector<int64_t>& values) {
    return values.empty() ? nullptr : values.data();
  };
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = ranks.world, options.rank = rank, options.balance = ranks.balance;
  options.length = ranks.length, options.key_length = ranks.key_length;
  options.cu_seqlens = data(ranks.cu_seqlens), options.cu_seqlens_k = data(ranks.cu_seqlens_k);
  options.offsets = ranks.cu_seqlens.size();
  options.bounds = data(ranks.bounds);
  options.block_size = 3;
  lathe_shard* made = nullptr;
  API(lathe_shard_create_with(&made, &options));
  return Shard(made);
}

// A rank's tensors, and the run.
class RankRun {
 public:
  RankRun(const AttentionCall& call, const Ranks& ranks, lathe_context* context, OneRank* out)
      : call_(call), ranks_(ranks), context_(context), stream_(context), out_(out) {}

  void operator()(lathe_group* group, int rank) {
    const Problem problem = declare(call_);
    API(lathe_problem_group(problem.get(), group, ranks_.flags));
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context_, problem.get()));
    const Plan plan(made);
    const Shard shard = make_shard(ranks_, rank);
    API(lathe_shard_prepare(shard.get(), made));
    out_->queries = intervals_of(shard.get(), LATHE_QUERIES);
    out_->keys = intervals_of(shard.get(), LATHE_KEYS);
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(made), nullptr);
    for (const auto& [name, given] : call_.tensors) {
      add(name, given);
      size_t slot = 0;
      API(lathe_plan_slot(made, name.c_str(), &slot));
      slots.at(slot) = tensors_.at(name).dl();
    }
    API(lathe_plan_workspace(made, slots.data(), shard.get(), &out_->workspace));
    const Memory workspace(context_, out_->workspace);
    const auto run = [&] {
      API(lathe_plan_run_sharded(made, shard.get(), slots.data(), workspace.data(), out_->workspace,
                                 stream_.get()));
    };
    std::unique_ptr<CapturedGraph> graph;
    if (ranks_.graph) graph = std::make_unique<CapturedGraph>(context_, stream_.get(), run);
    for (int i = 0; i < ranks_.runs; ++i) graph ? graph->launch() : run();
    API(lathe_stream_synchronize(context_, stream_.get()));
    API(lathe_group_error(group));
    for (const auto& [name, given] : call_.tensors) {
      if (given.values.empty()) out_->outputs[name] = tensors_.at(name).download();
    }
  }

 private:
  void add(const std::string& name, const GivenTensor& given) {
    const Axis axis = axis_of(call_, name, given.shape.size());
    std::vector<int64_t> shape = given.shape;
    Values values = given.values;
    if (axis.dimension >= 0) {
      const Intervals& held = axis.of(*out_);
      shape[static_cast<size_t>(axis.dimension)] = tokens_of(held);
      values.clear();
      each_piece(given.shape, axis.dimension, held, [&](int64_t whole, int64_t, int64_t count) {
        if (given.values.empty()) return;
        const auto from = given.values.begin() + whole;
        values.insert(values.end(), from, from + count);
      });
    }
    const bool strided = given.dtype == LATHE_BF16 || given.dtype == LATHE_F16;
    Tensor& tensor = tensors_
                         .try_emplace(name, context_, given.dtype, shape,
                                      strided ? ranks_.placement : Placement{}, stream_.get())
                         .first->second;
    if (given.values.empty()) {
      tensor.poison();
    } else {
      tensor.upload(values);
    }
  }

  const AttentionCall& call_;
  const Ranks& ranks_;
  lathe_context* context_;
  Stream stream_;
  OneRank* out_;
  std::map<std::string, Tensor> tensors_;
};

// The whole of an output that every rank has a share of.
Values whole_of(const AttentionCall& call, const Ranks& ranks, const std::vector<OneRank>& parts,
                const std::string& name) {
  const std::vector<int64_t>& shape = call.tensors.at(name).shape;
  const Axis axis = axis_of(call, name, shape.size());
  if (axis.dimension >= 0) {
    Values all(AttentionCall::count(shape));
    for (const OneRank& part : parts) {
      const Values& own = part.outputs.at(name);
      each_piece(shape, axis.dimension, axis.of(part),
                 [&](int64_t whole, int64_t local, int64_t count) {
                   std::copy_n(own.begin() + local, count, all.begin() + whole);
                 });
    }
    return all;
  }
  Values all = parts[0].outputs.at(name);
  for (size_t r = 1; r < parts.size(); ++r) {
    const Values& own = parts[r].outputs.at(name);
    if (ranks.flags & LATHE_REDUCE_PARAMETER_GRADS) {
      if (own != all) throw std::runtime_error(name + " differs between ranks");
      continue;
    }
    for (size_t i = 0; i < all.size(); ++i) all[i] += own[i];
  }
  return all;
}

// Where the simulator's NCCL writes down its hops; a file of this process.
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
    // The first is how ranks agree when they prepare their shards.
    if (json.at("hop") == 0 && json.at("collectives") > 0) continue;
    out.push_back({json.at("rank"), json.at("sends"), json.at("receives"), json.at("collectives"),
                   json.at("bytes_sent"), json.at("bytes_received")});
  }
  return out;
}

}  // namespace

RanksAnswer run_ranks(const AttentionCall& call, const Ranks& ranks) {
  const size_t world = static_cast<size_t>(ranks.world);
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  std::ofstream(hops_path()).close();
  std::vector<OneRank> parts(world);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      try {
        const Context context = make_context();
        lathe_group* group = nullptr;
        const int rank = static_cast<int>(r);
        API(lathe_group_create(&group, context.get(), id.data(), ranks.world, rank, 20000));
        const Group owner(group);
        RankRun(call, ranks, context.get(), &parts[r])(group, rank);
      } catch (...) {
        parts[r].error = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const OneRank& part : parts) {
    if (part.error) std::rethrow_exception(part.error);
  }
  check_no_findings();
  RanksAnswer answer;
  for (const auto& [name, given] : call.tensors) {
    if (given.values.empty()) answer.outputs[name] = whole_of(call, ranks, parts, name);
  }
  for (const OneRank& part : parts) {
    answer.workspaces.push_back(part.workspace);
    answer.queries.push_back(part.queries), answer.keys.push_back(part.keys);
  }
  answer.hops = read_hops();
  return answer;
}

}  // namespace apitest
