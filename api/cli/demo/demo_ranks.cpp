// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A layer of convolutions and Kimi Delta Attention, and a layer of causal attention, forward and
// backward, over ranks and on one: what differs, who computed what when, what was sent.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "api/cli/demo/demo_cases.h"
#include "api/cli/execute.h"
#include "api/cli/inputs/made_up.h"
#include "api/cli/reports/line_file.h"
#include "api/cli/reports/progress.h"
#include "api/cli/reports/schedule_picture.h"

namespace lathe::cli {
namespace {

constexpr double kBound = 8e-3;  // rms of bfloat16 results against those of one rank
constexpr int64_t kTokensPerRank = 96, kHeads = 2, kKeyHeads = 2, kWidth = 64;

struct TrafficCounts {
  int groups = 0;            // of messages, of the rank with the most
  uint64_t sent = 0;         // bytes, of the rank with the most
  uint64_t largest_hop = 0;  // bytes that one rank sends in one group
};

// Counts messages from its making on; one at a time.
class Traffic {
 public:
  Traffic() { setenv("LATHE_SIM_NCCL_COUNTERS", file_.path().c_str(), 1); }

  // Returns the counts since the last call. Zeros where another NCCL runs.
  TrafficCounts take() {
    std::map<int, TrafficCounts> ranks;
    for (const Json& json : file_.lines("the counters of messages have")) {
      // The ranks agree on the plan before their first run: a collective, no part of the run.
      if (json.at("hop") == 0 && json.at("sends") == 0 && json.at("receives") == 0) continue;
      TrafficCounts& rank = ranks[json.at("rank").get<int>()];
      const uint64_t bytes =
          json.at("bytes_sent").get<uint64_t>() + json.at("collective_bytes").get<uint64_t>();
      rank = {rank.groups + 1, rank.sent + bytes, std::max(rank.largest_hop, bytes)};
    }
    file_.clear();
    TrafficCounts most;
    for (const auto& [rank, counts] : ranks) {
      most = {std::max(most.groups, counts.groups), std::max(most.sent, counts.sent),
              std::max(most.largest_hop, counts.largest_hop)};
    }
    return most;
  }

 private:
  LineFile file_{"traffic"};
};

struct Stage {
  std::string name;
  double ms = 0;
  TrafficCounts traffic;
};

// One layer's results and how it came to them.
struct LayerRun {
  TensorMap results;
  std::vector<Stage> stages;
};

struct Session {
  lathe_context* context;
  Ranks ranks;
  Report* report;
  Traffic* traffic;
};

HostTensor viewed(HostTensor tensor, std::vector<int64_t> shape) {
  tensor.spec.shape = std::move(shape);
  return tensor;
}

// Runs one operator on whole tensors, over the session's ranks.
TensorMap stage(const Session& session, const char* op, Settings settings, const TensorMap& inputs,
                const std::string& name, LayerRun* run) {
  Specs specs;
  for (const auto& [input, tensor] : inputs) specs[input] = tensor.spec;
  const Problem problem = make_problem(find_operator(op), std::move(settings), specs);
  StageTimes times;
  TensorMap out = execute(session.context, problem, inputs, session.ranks, session.report, &times);
  run->stages.push_back({name, times.run, session.traffic->take()});
  return out;
}

// Runs silu(conv(q)), silu(conv(k)), silu(conv(v)) into kda, whose gradients go back through them.
LayerRun kda_layer(const Session& session, int64_t tokens) {
  LayerRun run;
  const std::vector<int64_t> flat = {1, tokens, kHeads * kWidth},
                             rows = {1, tokens, kHeads, kWidth};
  TensorMap convs[3], core;
  const char* const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; ++i) {
    convs[i] = noise({{"x", {LATHE_BF16, flat}}, {"weight", {LATHE_BF16, {flat[2], 4}}}}, 20 + i);
    TensorMap y = stage(session, "causal_conv1d", {{"activation", "silu"}}, convs[i],
                        std::string("conv ") + names[i], &run);
    core[names[i]] = viewed(std::move(y.at("y")), rows);
  }
  core.merge(noise({{"g", {LATHE_F32, rows}},
                    {"beta", {LATHE_BF16, {1, tokens, kHeads}}},
                    {"do", {LATHE_BF16, rows}}},
                   23));
  TensorMap out =
      stage(session, "kda", {{"use_qk_l2norm_in_kernel", "1"}, {"output_final_state", "1"}}, core,
            "kda, forward and backward", &run);
  for (int i = 0; i < 3; ++i) {
    convs[i]["dy"] = viewed(out.at(std::string("d") + names[i]), flat);
    TensorMap gradients = stage(session, "causal_conv1d", {{"activation", "silu"}}, convs[i],
                                std::string("conv ") + names[i] + ", backward", &run);
    for (const char* name : {"dx", "dweight"}) {
      run.results[std::string(name) + " of " + names[i]] = std::move(gradients.at(name));
    }
  }
  for (const char* name : {"o", "final_state", "dg", "dbeta"}) {
    run.results[name] = std::move(out.at(name));
  }
  return run;
}

LayerRun attention_layer(const Session& session, int64_t tokens) {
  LayerRun run;
  const std::vector<int64_t> q = {1, tokens, 2 * kKeyHeads, kWidth},
                             k = {1, tokens, kKeyHeads, kWidth};
  const TensorMap inputs = noise({{"q", {LATHE_BF16, q}},
                                  {"k", {LATHE_BF16, k}},
                                  {"v", {LATHE_BF16, k}},
                                  {"dout", {LATHE_BF16, q}}},
                                 30);
  run.results = stage(session, "flash_attention", {{"causal", "1"}}, inputs,
                      "attention, forward and backward", &run);
  return run;
}

std::vector<Verdict> compare(const TensorMap& ranks, const TensorMap& alone) {
  std::vector<Verdict> out;
  for (const auto& [name, expected] : alone) {
    out.push_back(verdict_of(name, ranks.at(name), values(expected), kBound));
  }
  return out;
}

void print_stages(const LayerRun& run) {
  for (const Stage& one : run.stages) {
    std::printf("      %-32s %8.1f ms   %2d groups of messages, %s sent, at most %s at once\n",
                one.name.c_str(), one.ms, one.traffic.groups,
                bytes_text(static_cast<double>(one.traffic.sent)).c_str(),
                bytes_text(static_cast<double>(one.traffic.largest_hop)).c_str());
  }
}

// Draws where the tokens of contiguous parts are, and what goes on from part to part.
std::string chain_picture(int ranks, int64_t tokens) {
  std::string line = "      tokens ", arrows = "             ";
  for (int rank = 0; rank < ranks; ++rank) {
    line += formatted("| rank %d: %4lld ", rank, static_cast<long long>(rank * tokens / ranks));
    if (rank + 1 < ranks) arrows += "------------> ";
  }
  return line + "| " + std::to_string(tokens) + "\n" + arrows +
         "\n      forward: conv's last 3 rows, kda's (M, S) of each part; backward: their "
         "gradients "
         "back\n";
}

Json layer_json(const char* name, const LayerRun& run, const std::vector<Verdict>& all) {
  Json json = {{"layer", name}, {"errors", Json::object()}, {"stages", Json::array()}};
  for (const Verdict& one : all) json["errors"][one.output] = one.error;
  for (const Stage& one : run.stages) {
    json["stages"].push_back({{"name", one.name},
                              {"ms", one.ms},
                              {"groups", one.traffic.groups},
                              {"bytes_sent", one.traffic.sent}});
  }
  return json;
}

struct Layer {
  const char* name;
  const char* title;
  LayerRun (*run)(const Session&, int64_t);
  lathe_balance balance;
};

constexpr Layer kLayers[] = {
    {"kda", "causal_conv1d on q, k and v, then kda; bf16, contiguous parts", kda_layer,
     LATHE_BALANCE_NONE},
    {"attention", "flash_attention, causal, 2 query heads a key head; bf16, head-tail, a ring",
     attention_layer, LATHE_BALANCE_HEAD_TAIL},
};

}  // namespace

int demo_ranks(lathe_context* context, int ranks, bool json) {
  Report report(context);
  Traffic traffic;
  Json layers = Json::array();
  bool good = true;
  const int64_t tokens = kTokensPerRank * ranks + 7;
  for (const Layer& layer : kLayers) {
    const auto run = [&](const Ranks& where) {
      const Progress progress(std::string(layer.title) +
                              (where.count > 0 ? " over ranks" : " on one rank"));
      return layer.run({context, where, &report, &traffic}, tokens);
    };
    const LayerRun alone = run({}), split = run({.count = ranks, .balance = layer.balance});
    const auto all = compare(split.results, alone.results);
    const Verdict& worst = worst_of(all);
    good = good && worst.good;
    layers.push_back(layer_json(layer.name, split, all));
    if (json) continue;
    std::printf("%s  %s\n      %lld tokens over %d ranks, which are threads here\n",
                worst.good ? "ok  " : "FAIL", layer.title, static_cast<long long>(tokens), ranks);
    if (layer.balance == LATHE_BALANCE_NONE) {
      std::printf("%s", chain_picture(ranks, tokens).c_str());
    } else {
      const auto hop = static_cast<uint64_t>((tokens + ranks - 1) / ranks * kKeyHeads * kWidth * 4);
      std::printf("%s", picture_text(ring_picture(ranks, true, "head_tail"), hop).c_str());
    }
    print_stages(split);
    std::printf("      %zu results against one rank; worst is %s: error %.2g, allowed %.2g\n\n",
                all.size(), worst.output.c_str(), worst.error, kBound);
  }
  if (json) {
    Json out = report.json();
    out["ok"] = good;
    out["ranks"] = ranks;
    out["layers"] = layers;
    print_json(out);
  } else {
    std::printf("%s: %d ranks give what one rank gives; %zu kernels, %zu compiled now\n",
                good ? "all results are right" : "NOT all results are right", ranks,
                report.kernels.size(), report.compiled());
  }
  return good ? kDone : kFailed;
}

}  // namespace lathe::cli
