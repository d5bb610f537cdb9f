// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/ranks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "tests/harness/graph_client.h"

namespace apitest {
namespace {

// A rank with the plan of its part of a call.
struct PlannedRank {
  void plan(const Rank& own, const Call& call) {
    rank = &own;
    planned = std::make_unique<PlannedCall>(own.context(), own.part(call), own.seat());
  }
  // All runs in one thread, which must be the one that makes, launches and destroys a graph.
  void run(const Ranks& ranks) {
    std::unique_ptr<CapturedGraph> graph;
    for (int i = 0; i < ranks.runs; ++i) {
      planned->reset();
      if (ranks.graph && !graph) {
        graph = std::make_unique<CapturedGraph>(rank->context(), planned->stream(),
                                                [this] { planned->enqueue(); });
      }
      graph ? graph->launch() : planned->enqueue();
      planned->synchronize();
      Outputs found = planned->outputs();
      if (i > 0 && found != outputs) throw std::runtime_error("a run is not repeated");
      outputs = std::move(found);
    }
  }

  const Rank* rank = nullptr;
  std::unique_ptr<PlannedCall> planned;
  Outputs outputs;
};

// States of sequences, [N, ...], of which every rank wrote those that it owns, whole.
Values owned(const Call& call, const std::vector<PlannedRank>& ranks, const std::string& name) {
  const int64_t tokens = length_of(call, kQueryDims);
  const int64_t sequences = call.tensors.at(name).shape[0];
  Values all(Call::count(call.tensors.at(name).shape));
  const auto each = std::ssize(all) / std::max<int64_t>(sequences, 1);
  for (int64_t n = 0; n < sequences; ++n) {
    size_t owners = 0;
    for (const auto& rank : ranks) {
      const auto from = rank.outputs.at(name).begin() + n * each;
      if (std::all_of(from, from + each, [](double x) { return std::isnan(x); })) continue;
      if (owners++ > 0 && !std::equal(from, from + each, all.begin() + n * each)) {
        throw std::runtime_error(name + " of a sequence differs between ranks");
      }
      std::copy_n(from, each, all.begin() + n * each);
    }
    if (owners == (tokens == 0 ? ranks.size() : 1)) continue;
    throw std::runtime_error(name + " of sequence " + std::to_string(n) + " was written by " +
                             std::to_string(owners) + " ranks");
  }
  return all;
}

// Returns the whole of an output that every rank has a share of.
Values whole_of(const Call& call, bool summed, const std::vector<PlannedRank>& ranks,
                const std::string& name) {
  const std::vector<int64_t>& shape = call.tensors.at(name).shape;
  if (dimension_of(call, name, {"N"}) == 0) return owned(call, ranks, name);
  if (ranks[0].rank->axis_of(call, name).dimension >= 0) {
    Values all(Call::count(shape));
    for (const auto& rank : ranks) {
      const auto found = rank.outputs.find(name);
      if (found == rank.outputs.end()) continue;
      const Rank::Axis axis = rank.rank->axis_of(call, name);
      each_piece(
          shape, axis.dimension, axis.held,
          [&](int64_t whole, int64_t local, int64_t count) {
            std::copy_n(found->second.begin() + local, count, all.begin() + whole);
          },
          rank.rank->rows());
    }
    return all;
  }
  Values all = ranks[0].outputs.at(name);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const Values& own = ranks[r].outputs.at(name);
    if (summed && own != all) throw std::runtime_error(name + " differs between ranks");
    for (size_t i = 0; !summed && i < all.size(); ++i) all[i] += own[i];
  }
  return all;
}

// The simulator's NCCL writes its hops into this file, which goes with the process.
const std::string& hops_path() {
  static const std::string path = [] {
    const std::string made = process_file("hops");
    setenv("LATHE_SIM_NCCL_COUNTERS", made.c_str(), 1);
    return made;
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

// What a rank gave for one layout.
struct LayoutOutputs {
  Outputs outputs;
  Intervals queries, keys;
};

// Replays one graph over all layouts.
std::vector<LayoutOutputs> replay(Rank* rank, const std::vector<LayoutCall>& calls) {
  PlannedCall planned(rank->context(), rank->part(calls.front().call), rank->seat());
  const CapturedGraph graph(rank->context(), planned.stream(), [&] { planned.enqueue(); });
  std::vector<LayoutOutputs> out;
  for (const LayoutCall& each : calls) {
    rank->update(each.call, each.ranks, planned.stream());
    for (const auto& [name, tensor] : each.call.tensors) {
      if (!tensor.values.empty()) planned.upload(name, rank->part(each.call, name, tensor.values));
    }
    planned.reset();
    graph.launch();
    planned.synchronize();
    out.push_back({planned.outputs(), rank->queries, rank->keys});
  }
  return out;
}

}  // namespace

std::vector<Outputs> replay_layouts(const std::vector<LayoutCall>& calls) {
  const Ranks& ranks = calls.front().ranks;
  auto all = make_ranks(calls.front().call, ranks);
  std::vector<std::vector<LayoutOutputs>> found(all.size());
  each_rank(&all, [&](size_t r) { found[r] = replay(all[r].get(), calls); });
  check_no_findings();
  std::vector<Outputs> out;
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<PlannedRank> shares(all.size());
    for (size_t r = 0; r < all.size(); ++r) {
      shares[r].rank = all[r].get(), shares[r].outputs = found[r][i].outputs;
      all[r]->queries = found[r][i].queries, all[r]->keys = found[r][i].keys;
    }
    const bool summed = (ranks.flags & LATHE_REDUCE_PARAMETER_GRADS) != 0;
    out.emplace_back();
    for (const auto& [name, given] : calls[i].call.tensors) {
      if (given.values.empty()) out.back()[name] = whole_of(calls[i].call, summed, shares, name);
    }
  }
  each_rank(&all, [&](size_t r) { all[r].reset(); });
  return out;
}

RanksAnswer run_ranks(const Call& call, const Ranks& ranks) {
  hops_path();
  auto all = make_ranks(call, ranks);
  std::vector<PlannedRank> planned(all.size());
  each_rank(&all, [&](size_t r) { planned[r].plan(*all[r], call); });
  check_no_findings();
  std::ofstream(hops_path()).close();
  each_rank(&all, [&](size_t r) { planned[r].run(ranks); });
  RanksAnswer answer;
  answer.hops = read_hops();
  const Report report = take_report();
  answer.launches = report.launches.size();
  for (const std::string& finding : report.findings) throw std::runtime_error(finding);
  const bool summed = (ranks.flags & LATHE_REDUCE_PARAMETER_GRADS) != 0;
  for (const auto& [name, given] : call.tensors) {
    if (given.values.empty()) answer.outputs[name] = whole_of(call, summed, planned, name);
  }
  for (const PlannedRank& rank : planned) {
    answer.workspaces.push_back(rank.planned->workspace_bytes());
    answer.estimates.push_back(rank.planned->estimate());
    answer.queries.push_back(rank.rank->queries), answer.keys.push_back(rank.rank->keys);
  }
  // Groups end together.
  each_rank(&all, [&](size_t r) { planned[r].planned.reset(), all[r].reset(); });
  return answer;
}

}  // namespace apitest
