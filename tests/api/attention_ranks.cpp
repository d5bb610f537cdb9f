// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/api/attention_ranks.h"

#include <array>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace apitest {
namespace {

using Id = std::array<char, LATHE_UNIQUE_ID_BYTES>;

// How a tensor is cut: tokens of an axis are its dimension `axis` (-1: not cut), of `whole` tokens.
struct Cut {
  std::vector<int64_t> shape;  // of the whole tensor
  int axis = -1;
  bool keys = false;
};

struct Tokens {
  std::vector<int64_t> queries, keys;  // positions that a rank holds, in order
  const std::vector<int64_t>& of(const Cut& cut) const { return cut.keys ? keys : queries; }
};

std::map<std::string, Cut> cuts_of(const AttentionCase& c, const ref::Attention& in) {
  const int64_t batch = c.sequences(), sq = c.queries.empty() ? 0 : c.queries[0],
                sk = c.keys.empty() ? 0 : c.keys[0];
  const auto rows = [&](bool keys, int64_t heads, int64_t width) {
    const int64_t packed = keys ? in.begin_k.back() : in.begin_q.back();
    if (c.packed) return Cut{{packed, heads, width}, 0, keys};
    return Cut{{batch, keys ? sk : sq, heads, width}, 1, keys};
  };
  const Cut lse = c.packed ? Cut{{c.heads(), in.begin_q.back()}, 1, false}
                           : Cut{{batch, c.heads(), sq}, 2, false};
  std::map<std::string, Cut> out = {{"q", rows(false, c.heads(), c.head_dim)},
                                    {"dq", rows(false, c.heads(), c.head_dim)},
                                    {"k", rows(true, c.kv_heads, c.head_dim)},
                                    {"dk", rows(true, c.kv_heads, c.head_dim)},
                                    {"v", rows(true, c.kv_heads, c.value_dim)},
                                    {"dv", rows(true, c.kv_heads, c.value_dim)},
                                    {"out", rows(false, c.heads(), c.value_dim)},
                                    {"dout", rows(false, c.heads(), c.value_dim)},
                                    {"lse", lse},
                                    {"dlse", lse},
                                    {"sinks", Cut{{c.heads()}}},
                                    {"dsinks", Cut{{c.heads()}}}};
  for (const char* name : {"cu_seqlens_q", "cu_seqlens_k"}) out[name] = Cut{{c.sequences() + 1}};
  out["alibi_slopes"] =
      c.slopes == Slopes::per_sequence ? Cut{{c.sequences(), c.heads()}} : Cut{{c.heads()}};
  return out;
}

// Calls f(index in the whole, index in the part) for each element of a rank's part.
template <typename F>
void for_each_of(const Cut& cut, const std::vector<int64_t>& positions, F f) {
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < static_cast<int>(cut.shape.size()); ++d) {
    if (d < cut.axis) outer *= cut.shape[d];
    if (d > cut.axis) inner *= cut.shape[d];
  }
  const int64_t whole = cut.axis < 0 ? 1 : cut.shape[cut.axis];
  const int64_t part = cut.axis < 0 ? 1 : static_cast<int64_t>(positions.size());
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t t = 0; t < part; ++t) {
      const int64_t at = cut.axis < 0 ? 0 : positions[t];
      for (int64_t i = 0; i < inner; ++i)
        f((o * whole + at) * inner + i, (o * part + t) * inner + i);
    }
  }
}

// What one rank is made of; kept until all have finished.
class RankRun {
 public:
  RankRun(const AttentionCase& attention, const RankOptions& options, const ref::Attention& in,
          int rank, const Id& id)
      : case_(attention), in_(in), options_(options), cuts_(cuts_of(attention, in)) {
    cuts_["capture_0"] = Cut{{static_cast<int64_t>(options.capture.size())}};
    context_ = make_context();
    lathe_group* group = nullptr;
    API(lathe_group_create(&group, context_.get(), id.data(), options.world, rank, 20000));
    group_.reset(group);
    make_shard(rank);
    stream_ = std::make_unique<Stream>(context_.get());
  }

  Values run() {
    if (!case_.backward || !case_.saved_forward) {
      return run_plan(true, case_.backward, nullptr);
    }
    Values out = run_plan(true, false, nullptr);
    out.merge(run_plan(false, true, &out));
    return out;
  }
  const Tokens& tokens() const { return tokens_; }
  const std::map<std::string, Cut>& cuts() const { return cuts_; }
  const lathe_estimate& estimate() const { return estimate_; }
  lathe_group* group() const { return group_.get(); }

 private:
  void make_shard(int rank) {
    lathe_shard_options o = LATHE_SHARD_OPTIONS_INIT;
    o.world = options_.world, o.rank = rank, o.balance = options_.balance;
    o.length = cuts_.at("q").shape[cuts_.at("q").axis];
    o.key_length = cuts_.at("k").shape[cuts_.at("k").axis];
    o.block_size = options_.block_size;
    if (case_.packed) {
      o.cu_seqlens = in_.begin_q.data(), o.cu_seqlens_k = in_.begin_k.data();
      o.offsets = in_.begin_q.size();
    }
    lathe_shard* shard = nullptr;
    API(lathe_shard_create_with(&shard, &o));
    shard_.reset(shard);
    for (const lathe_axis axis : {LATHE_QUERIES, LATHE_KEYS}) {
      const int64_t* ends = nullptr;
      size_t count = 0;
      API(lathe_shard_intervals(shard, axis, &ends, &count));
      for (size_t i = 0; i < count; ++i) {
        for (int64_t t = ends[2 * i]; t < ends[2 * i + 1]; ++t) {
          (axis == LATHE_KEYS ? tokens_.keys : tokens_.queries).push_back(t);
        }
      }
    }
  }

  std::vector<int64_t> part_shape(const Cut& cut) const {
    std::vector<int64_t> shape = cut.shape;
    if (cut.axis >= 0) shape[cut.axis] = static_cast<int64_t>(tokens_.of(cut).size());
    return shape;
  }
  void add(lathe_problem* problem, const std::string& name, lathe_dtype dtype) {
    const Cut& cut = cuts_.at(name);
    std::vector<int64_t> declared = cut.shape;
    if (cut.axis >= 0) declared[cut.axis] = -1;
    if (cut.shape.size() == 4 || (cut.shape.size() == 3 && cut.axis == 2)) declared[0] = -1;
    API(lathe_problem_tensor(problem, name.c_str(), dtype, static_cast<int>(declared.size()),
                             declared.data()));
    const bool rows = cut.axis >= 0 && name != "lse" && name != "dlse";
    tensors_[name] = std::make_unique<Tensor>(context_.get(), dtype, part_shape(cut),
                                              rows ? case_.placement : Placement{}, stream_->get());
  }
  void input(lathe_problem* problem, const std::string& name, lathe_dtype dtype,
             const std::vector<double>& whole) {
    add(problem, name, dtype);
    const Cut& cut = cuts_.at(name);
    std::vector<double> part;
    for_each_of(cut, tokens_.of(cut), [&](int64_t from, int64_t) {
      part.push_back(whole.at(static_cast<size_t>(from)));
    });
    tensors_.at(name)->upload(part);
  }
  void output(lathe_problem* problem, const std::string& name, lathe_dtype dtype) {
    add(problem, name, dtype);
    tensors_.at(name)->poison();
    outputs_.push_back(name);
  }

  void add_inputs(lathe_problem* p) {
    input(p, "q", case_.dtype, in_.q);
    input(p, "k", case_.dtype, in_.k);
    input(p, "v", case_.dtype, in_.v);
    if (case_.slopes != Slopes::none) input(p, "alibi_slopes", LATHE_F32, in_.alibi_slopes);
    if (case_.sinks) input(p, "sinks", LATHE_F32, in_.sinks);
    if (case_.packed) {
      input(p, "cu_seqlens_q", case_.cu_dtype, {in_.begin_q.begin(), in_.begin_q.end()});
      input(p, "cu_seqlens_k", case_.cu_dtype, {in_.begin_k.begin(), in_.begin_k.end()});
    }
    if (case_.scale > 0) API(lathe_problem_set_double(p, "softmax_scale", case_.scale));
    const auto option = [&](const char* name, const std::string& value) {
      API(lathe_problem_set_string(p, name, value.c_str()));
    };
    option("causal", case_.causal ? "1" : "0");
    option("window_left", std::to_string(case_.left));
    option("window_right", std::to_string(case_.right));
    option("deterministic", case_.deterministic ? "1" : "0");
    if (options_.sm_margin) option("sm_margin", std::to_string(options_.sm_margin));
    API(lathe_problem_set_double(p, "softcap", case_.softcap));
    if (options_.gather_heads) option("gather_heads", std::to_string(options_.gather_heads));
    for (const auto& [name, text] : options_.texts) {
      API(lathe_problem_set_text(p, name.c_str(), text.data(), text.size()));
    }
    if (!options_.capture.empty()) input(p, "capture_0", LATHE_F32, options_.capture);
  }

  // `saved`: this rank's parts of out and lse.
  Values run_plan(bool forward, bool backward, const Values* saved) {
    tensors_.clear(), outputs_.clear();
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, "flash_attention"));
    const Problem owner(problem);
    API(lathe_problem_group(problem, group_.get(), options_.flags));
    add_inputs(problem);
    if (forward) {
      output(problem, "out", case_.dtype);
      output(problem, "lse", LATHE_F32);
    } else {
      for (const auto& [name, dtype] :
           {std::pair("out", case_.dtype), std::pair("lse", LATHE_F32)}) {
        add(problem, name, dtype);
        tensors_.at(name)->upload(saved->at(name));
      }
      API(lathe_problem_set_string(problem, "saved_forward", "1"));
    }
    if (backward) {
      input(problem, "dout", case_.dtype, in_.dout);
      if (case_.dlse) input(problem, "dlse", LATHE_F32, in_.dlse);
      for (const char* name : {"dq", "dk", "dv"}) {
        if (case_.wants(name)) output(problem, name, case_.dtype);
      }
      if (case_.sinks && case_.wants("dsinks")) output(problem, "dsinks", LATHE_F32);
    }
    return run_problem(problem);
  }

  Values run_problem(lathe_problem* problem) {
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context_.get(), problem));
    const Plan owner(plan);
    API(lathe_shard_prepare(shard_.get(), plan));
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan), nullptr);
    for (const auto& [name, tensor] : tensors_) {
      size_t slot = 0;
      API(lathe_plan_slot(plan, name.c_str(), &slot));
      slots.at(slot) = tensor->dl();
    }
    lathe_estimate estimate = {};
    estimate.size = sizeof estimate;
    API(lathe_plan_estimate(plan, slots.data(), shard_.get(), &estimate));
    estimate_.launches += estimate.launches;
    estimate_.exchanges += estimate.exchanges;
    estimate_.exchange_bytes += estimate.exchange_bytes;
    size_t bytes = 0;
    API(lathe_plan_workspace(plan, slots.data(), shard_.get(), &bytes));
    const Memory workspace(context_.get(), bytes);
    API(lathe_plan_run_sharded(plan, shard_.get(), slots.data(), bytes ? workspace.data() : nullptr,
                               bytes, stream_->get()));
    API(lathe_stream_synchronize(context_.get(), stream_->get()));
    API(lathe_group_error(group_.get()));
    Values out;
    for (const auto& name : outputs_) out[name] = tensors_.at(name)->download();
    return out;
  }

  const AttentionCase& case_;
  const ref::Attention& in_;
  const RankOptions& options_;
  std::map<std::string, Cut> cuts_;
  Context context_;
  Group group_;
  Shard shard_;
  std::unique_ptr<Stream> stream_;
  Tokens tokens_;
  lathe_estimate estimate_ = {};
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<std::string> outputs_;
};

struct Result {
  Values values;
  Tokens tokens;
  lathe_estimate estimate = {};
  std::exception_ptr error;
};

void put_together(const Cut& cut, const std::string& name, const std::vector<Result>& ranks,
                  bool reduced, std::vector<double>* whole) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<double>& part = ranks[r].values.at(name);
    if (cut.axis < 0 && reduced) {
      if (r > 0 && part != *whole) {
        throw std::runtime_error(name + " of rank " + std::to_string(r) + " differs from rank 0");
      }
      *whole = part;
      continue;
    }
    for_each_of(cut, ranks[r].tokens.of(cut), [&](int64_t to, int64_t from) {
      double& at = whole->at(static_cast<size_t>(to));
      at = cut.axis < 0 ? at + part.at(from) : part.at(static_cast<size_t>(from));
    });
  }
}

}  // namespace

std::string RankOptions::text() const {
  static const char* const kBalances[] = {"none", "head_tail", "per_document", "ptrr"};
  std::ostringstream out;
  out << "ranks " << world << ' ' << kBalances[balance] << " flags " << flags;
  return out.str();
}

Values run_attention_ranks(const AttentionCase& attention, const ref::Attention& inputs,
                           const RankOptions& options) {
  Id id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  std::vector<Result> ranks(static_cast<size_t>(options.world));
  std::vector<std::thread> threads;
  for (int r = 0; r < options.world; ++r) {
    threads.emplace_back([&, r] {
      Result& result = ranks[static_cast<size_t>(r)];
      try {
        RankRun run(attention, options, inputs, r, id);
        try {
          result.values = run.run();
        } catch (...) {
          lathe_group_abort(run.group());  // the others would wait
          throw;
        }
        result.tokens = run.tokens();
        result.estimate = run.estimate();
      } catch (...) {
        result.error = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Result& rank : ranks) {
    if (rank.error) std::rethrow_exception(rank.error);
  }
  if (options.estimates) {
    options.estimates->clear();
    for (const Result& rank : ranks) options.estimates->push_back(rank.estimate);
  }
  const auto cuts = cuts_of(attention, inputs);
  Values out;
  for (const auto& [name, unused] : ranks[0].values) {
    const Cut& cut = cuts.at(name);
    size_t size = 1;
    for (const int64_t extent : cut.shape) size *= static_cast<size_t>(extent);
    out[name].resize(size, 0.0);
    put_together(cut, name, ranks, options.flags & LATHE_REDUCE_PARAMETER_GRADS, &out[name]);
  }
  return out;
}

}  // namespace apitest
