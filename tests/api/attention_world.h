// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One call of flash_attention over ranks that are threads: its tensors are cut as the shard says,
// and the ranks' results put together again.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "tests/api/attention_call.h"

namespace apitest {

// What one rank handed to NCCL in one go.
struct NcclCount {
  int rank = 0;
  uint64_t sends = 0, receives = 0, sent = 0, received = 0, collectives = 0;
};

struct Split {
  int world = 2;
  unsigned flags = 0;
  lathe_balance balance = LATHE_BALANCE_NONE;
  int64_t length = 0, key_length = -1;
  std::vector<int64_t> cu_seqlens, cu_seqlens_k;  // packed
  std::vector<int64_t> bounds;
  int runs = 1;                            // of one plan, one after another: all alike
  std::vector<NcclCount>* hops = nullptr;  // where those of the last run go
  int64_t token_gap = 0;                   // elements between rows of activations
};

// Of a tensor's dimensions the one that is cut; -1: none.
inline int token_axis(const std::string& name, size_t rank) {
  for (const char* each : {"q", "k", "v", "dout", "out", "dq", "dk", "dv"}) {
    if (name == each) return static_cast<int>(rank) - 3;
  }
  return name == "lse" || name == "dlse" ? static_cast<int>(rank) - 1 : -1;
}
inline bool is_of_keys(const std::string& name) {
  return name == "k" || name == "v" || name == "dk" || name == "dv";
}

struct Cut {
  std::vector<std::pair<int64_t, int64_t>> intervals;
  int64_t tokens() const {
    int64_t sum = 0;
    for (const auto& [begin, end] : intervals) sum += end - begin;
    return sum;
  }
};

// `part` [.., tokens of the cut, ..] and `whole` [.., all tokens, ..]: copies one into the other.
inline void exchange(const std::vector<int64_t>& shape, int axis, const Cut& cut, Values* whole,
                     Values* part, bool to_part) {
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  const int64_t tokens = cut.tokens();
  for (int64_t o = 0; o < outer; ++o) {
    int64_t row = o * tokens;
    for (const auto& [begin, end] : cut.intervals) {
      for (int64_t t = begin; t < end; ++t, ++row) {
        for (int64_t i = 0; i < inner; ++i) {
          double& far = (*whole)[(o * shape[axis] + t) * inner + i];
          double& near = (*part)[row * inner + i];
          (to_part ? near : far) = to_part ? far : near;
        }
      }
    }
  }
}

class RankOfCall {
 public:
  RankOfCall(lathe_context* context, const AttentionCall& call, const Split& split, int rank,
             const char* id)
      : context_(context), call_(call), split_(split), stream_(context) {
    lathe_group* group = nullptr;
    API(lathe_group_create(&group, context, id, split.world, rank, 30000));
    group_.reset(group);
    lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
    options.world = split.world, options.rank = rank, options.balance = split.balance;
    options.length = split.length, options.key_length = split.key_length;
    if (!split.cu_seqlens.empty()) {
      options.cu_seqlens = split.cu_seqlens.data();
      options.offsets = split.cu_seqlens.size();
    }
    if (!split.cu_seqlens_k.empty()) options.cu_seqlens_k = split.cu_seqlens_k.data();
    if (!split.bounds.empty()) options.bounds = split.bounds.data();
    lathe_shard* shard = nullptr;
    API(lathe_shard_create_with(&shard, &options));
    shard_.reset(shard);
    for (const auto axis : {LATHE_QUERIES, LATHE_KEYS}) {
      const int64_t* pairs = nullptr;
      size_t count = 0;
      API(lathe_shard_intervals(shard, axis, &pairs, &count));
      for (size_t i = 0; i < count; ++i) {
        cuts_[axis].intervals.push_back({pairs[2 * i], pairs[2 * i + 1]});
      }
    }
    problem_ = declare(call);
    API(lathe_problem_group(problem_.get(), group, split.flags));
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context, problem_.get()));
    plan_.reset(plan);
    API(lathe_shard_prepare(shard, plan));
    slots_.resize(lathe_plan_slot_count(plan));
    for (const auto& [name, given] : call.tensors) put(name, given);
    size_t bytes = 0;
    API(lathe_plan_workspace(plan, slots_.data(), shard, &bytes));
    workspace_ = std::make_unique<Memory>(context, bytes);
  }

  void run() {
    for (auto& [name, tensor] : tensors_) {
      if (call_.tensors.at(name).values.empty()) tensor->poison();
    }
    API(lathe_plan_run_sharded(plan_.get(), shard_.get(), slots_.data(), workspace_->data(),
                               workspace_->bytes(), stream_.get()));
    API(lathe_stream_synchronize(context_, stream_.get()));
    API(lathe_group_error(group_.get()));
  }
  // What the library has summed must be the same on every rank.
  void give(AttentionAnswer* answer) {
    const bool summed = (split_.flags & LATHE_REDUCE_PARAMETER_GRADS) != 0;
    for (auto& [name, tensor] : tensors_) {
      const GivenTensor& given = call_.tensors.at(name);
      if (!given.values.empty()) continue;
      Values found = tensor->download();
      const int axis = token_axis(name, given.shape.size());
      Values& whole = answer->outputs[name];
      const bool first = whole.empty();
      if (first) whole.resize(AttentionCall::count(given.shape));
      if (axis >= 0) {
        exchange(given.shape, axis, cuts_[is_of_keys(name)], &whole, &found, false);
      } else if (summed && !first) {
        CHECK(whole == found);
      } else {
        for (size_t i = 0; i < found.size(); ++i) whole[i] += found[i];
      }
    }
  }
  lathe_group* group() const { return group_.get(); }

 private:
  void put(const std::string& name, const GivenTensor& given) {
    std::vector<int64_t> shape = given.shape;
    Values values = given.values;
    const int axis = token_axis(name, shape.size());
    if (axis >= 0) {
      const Cut& cut = cuts_[is_of_keys(name)];
      shape[axis] = cut.tokens();
      if (!values.empty()) {
        Values whole = values;
        values.resize(AttentionCall::count(shape));
        exchange(given.shape, axis, cut, &whole, &values, true);
      }
    }
    const bool rows = axis >= 0 && name != "lse" && name != "dlse";
    const Placement placement{.token_gap = rows ? split_.token_gap : 0, .guard = 32};
    auto& tensor = tensors_[name];
    tensor = std::make_unique<Tensor>(context_, given.dtype, shape, placement, stream_.get());
    if (!given.values.empty()) tensor->upload(values);
    size_t slot = 0;
    API(lathe_plan_slot(plan_.get(), name.c_str(), &slot));
    slots_.at(slot) = tensor->dl();
  }

  lathe_context* context_;
  const AttentionCall& call_;
  const Split& split_;
  Stream stream_;
  Group group_;
  Shard shard_;
  Problem problem_;
  Plan plan_;
  Cut cuts_[2];
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<const DLTensor*> slots_;
  std::unique_ptr<Memory> workspace_;
};

// Counts what ranks exchange while it lives, through the drop-in.
class Traffic {
 public:
  Traffic() : path_("traffic-" + std::to_string(getpid()) + ".jsonl") {
    path_ = (std::filesystem::temp_directory_path() / path_).string();
    setenv("LATHE_SIM_NCCL_COUNTERS", path_.c_str(), 1);
  }
  ~Traffic() {
    unsetenv("LATHE_SIM_NCCL_COUNTERS");
    std::remove(path_.c_str());
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  std::vector<NcclCount> hops() const {
    std::vector<NcclCount> out;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      const auto hop = nlohmann::json::parse(line);
      out.push_back({hop.at("rank"), hop.at("sends"), hop.at("receives"), hop.at("bytes_sent"),
                     hop.at("bytes_received"), hop.at("collectives")});
    }
    return out;
  }

 private:
  std::string path_;
};

// Parameter gradients are added over the ranks here, unless the flags have the library do it. Every
// run of the plan must give the same.
inline AttentionAnswer run_ranks(lathe_context* context, const AttentionCall& call,
                                 const Split& split) {
  char id[LATHE_UNIQUE_ID_BYTES];
  API(lathe_unique_id(context, id));
  std::vector<std::exception_ptr> errors(split.world);
  std::vector<std::unique_ptr<RankOfCall>> ranks(split.world);
  const auto each_rank = [&](const auto& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < split.world; ++r) {
      threads.emplace_back([&, r] {
        try {
          body(r);
        } catch (...) {
          errors[r] = std::current_exception();
          if (ranks[r]) (void)lathe_group_abort(ranks[r]->group());
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  };
  each_rank([&](int r) { ranks[r] = std::make_unique<RankOfCall>(context, call, split, r, id); });
  AttentionAnswer answer;
  for (int i = 0; i < split.runs; ++i) {
    take_report();
    {
      const Traffic traffic;
      each_rank([&](int r) { ranks[r]->run(); });
      if (split.hops) *split.hops = traffic.hops();
    }
    const Report report = take_report();
    for (const std::string& finding : report.findings) FAIL_CHECK(finding);
    AttentionAnswer found;
    found.launches = report.launches.size();
    for (auto& rank : ranks) rank->give(&found);
    if (i > 0) check_same(found, answer);
    answer = std::move(found);
  }
  each_rank([&](int r) { ranks[r].reset(); });
  return answer;
}

// What most calls of these tests have: one sequence, a batch of them, or packed ones.
struct CallShape {
  int64_t heads = 4, kv_heads = 4, batch = 1, queries = 40, keys = 40;
  std::vector<int64_t> cu_q, cu_k;  // packed; batch is not used then
  int64_t width = 16, value_width = 24;
  lathe_dtype dtype = LATHE_BF16;
  bool sinks = false, backward = true, dlse = false;
};

inline AttentionCall make_call(const CallShape& s) {
  AttentionCall call;
  const bool packed = !s.cu_q.empty();
  const auto shape = [&](int64_t tokens, int64_t heads, int64_t width) {
    std::vector<int64_t> out = {tokens, heads, width};
    if (!packed) out.insert(out.begin(), s.batch);
    return out;
  };
  std::vector<int64_t> rows = {s.heads, s.queries};
  if (!packed) rows.insert(rows.begin(), s.batch);
  call.draw("q", s.dtype, shape(s.queries, s.heads, s.width), 1);
  call.draw("k", s.dtype, shape(s.keys, s.kv_heads, s.width), 2);
  call.draw("v", s.dtype, shape(s.keys, s.kv_heads, s.value_width), 3);
  if (packed) {
    const auto offsets = static_cast<int64_t>(s.cu_q.size());
    call.put("cu_seqlens_q", LATHE_I32, {offsets}, Values(s.cu_q.begin(), s.cu_q.end()));
    const auto& cu_k = s.cu_k.empty() ? s.cu_q : s.cu_k;
    call.put("cu_seqlens_k", LATHE_I32, {offsets}, Values(cu_k.begin(), cu_k.end()));
  }
  if (s.sinks) call.draw("sinks", LATHE_F32, {s.heads}, 4);
  call.want("out", s.dtype, shape(s.queries, s.heads, s.value_width));
  call.want("lse", LATHE_F32, rows);
  if (!s.backward) return call;
  call.draw("dout", s.dtype, shape(s.queries, s.heads, s.value_width), 5);
  if (s.dlse) call.draw("dlse", LATHE_F32, rows, 6);
  call.want("dq", s.dtype, shape(s.queries, s.heads, s.width));
  call.want("dk", s.dtype, shape(s.keys, s.kv_heads, s.width));
  call.want("dv", s.dtype, shape(s.keys, s.kv_heads, s.value_width));
  if (s.sinks) call.want("dsinks", LATHE_F32, {s.heads});
  call.options["deterministic"] = "1";
  return call;
}

}  // namespace apitest
