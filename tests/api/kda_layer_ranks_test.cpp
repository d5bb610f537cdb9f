// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A whole layer over ranks: causal_conv1d on what becomes q, k and v, then kda on what it wrote,
// forward and backward, under one group and one shard. No tensor is copied between the operators.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <map>
#include <random>
#include <thread>

#include "tests/compare.h"
#include "tests/harness/session.h"
#include "tests/numbers.h"

namespace {

using namespace apitest;
using Array = std::vector<double>;
using Values = std::map<std::string, Array>;

constexpr int64_t kHeads = 2, kKeys = 32, kValues = 16, kWidth = 4;
constexpr lathe_dtype kElement = LATHE_BF16;
const std::vector<int64_t> kOffsets = {0, 45, 45, 120, 150};
const int64_t kTokens = kOffsets.back(), kSequences = 4;

lathe_context* context() {
  static const Context made = make_context();
  return made.get();
}

// What one rank works on; null and all tokens without a group.
struct Seat {
  lathe_group* group = nullptr;
  lathe_shard* shard = nullptr;
  void* stream = nullptr;
  int64_t begin = 0, end = kTokens;
};

// The same memory with other extents.
struct View {
  DLTensor dl;
  std::vector<int64_t> shape;

  View(const Tensor& of, std::vector<int64_t> extents) : dl(*of.dl()), shape(std::move(extents)) {
    dl.ndim = static_cast<int32_t>(shape.size());
    dl.shape = shape.data(), dl.strides = nullptr;
  }
};

// One operator of the layer. Tensors are declared as they are, but for the part of the tokens.
class Operator {
 public:
  Operator(const Seat& seat, const char* name) : seat_(seat) {
    lathe_problem* made = nullptr;
    API(lathe_problem_create(&made, name));
    problem_.reset(made);
  }
  void add(const char* name, lathe_dtype dtype, const Tensor& tensor,
           std::vector<int64_t> extents = {}) {
    if (extents.empty()) extents = tensor.shape();
    auto view = std::make_unique<View>(tensor, extents);
    const int64_t part = seat_.end - seat_.begin;
    if (extents.size() > 1 && extents[0] == 1 && extents[1] == part) extents[1] = -1;
    API(lathe_problem_tensor(problem_.get(), name, dtype, static_cast<int>(extents.size()),
                             extents.data()));
    views_.emplace(name, std::move(view));
  }
  void set(const char* option, const char* value) {
    API(lathe_problem_set_string(problem_.get(), option, value));
  }
  void run() {
    if (seat_.group) {
      API(lathe_problem_group(problem_.get(), seat_.group, LATHE_REDUCE_PARAMETER_GRADS));
    }
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context(), problem_.get()));
    plan_.reset(made);
    if (seat_.group) API(lathe_shard_prepare(seat_.shard, made));
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(made));
    for (const auto& [name, view] : views_) {
      size_t slot = 0;
      API(lathe_plan_slot(made, name.c_str(), &slot));
      slots[slot] = &view->dl;
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(made, slots.data(), seat_.shard, &bytes));
    workspace_ = std::make_unique<Memory>(context(), bytes);
    void* const workspace = workspace_->data();
    if (seat_.group) {
      API(lathe_plan_run_sharded(made, seat_.shard, slots.data(), workspace, bytes, seat_.stream));
    } else {
      API(lathe_plan_run(made, slots.data(), workspace, bytes, seat_.stream));
    }
  }

 private:
  const Seat& seat_;
  Problem problem_;
  Plan plan_;
  std::map<std::string, std::unique_ptr<View>> views_;
  std::unique_ptr<Memory> workspace_;
};

// Of the whole axis.
struct Inputs {
  Values values;

  Inputs() {
    std::mt19937 random(5);
    const auto fill = [&](const char* name, lathe_dtype dtype, int64_t count, double size,
                          double shift = 0) {
      Array& to = values[name];
      std::normal_distribution<double> normal(shift, size);
      for (int64_t i = 0; i < count; ++i) to.push_back(numbers::rounded(dtype, normal(random)));
    };
    for (const char* name : {"q", "k", "v"}) {
      const int64_t channels = kHeads * (*name == 'v' ? kValues : kKeys);
      fill(name, kElement, kTokens * channels, 1);
      fill((std::string("weight_") + name).c_str(), kElement, channels * kWidth, 0.5);
    }
    fill("g", LATHE_F32, kTokens * kHeads * kKeys, 1, -1);
    fill("beta", kElement, kTokens * kHeads, 1);
    fill("A_log", LATHE_F32, kHeads, 0.5);
    fill("initial_state", LATHE_F32, kSequences * kHeads * kKeys * kValues, 1);
    fill("do", kElement, kTokens * kHeads * kValues, 1);
  }
};

// The layer of one rank: its tensors by name, and the operators on them.
class Layer {
 public:
  explicit Layer(const Seat& seat) : seat_(seat), tokens_(seat.end - seat.begin) {
    const Inputs inputs;
    for (const char* name : {"q", "k", "v"}) {
      const int64_t channels = kHeads * (*name == 'v' ? kValues : kKeys);
      input(inputs, name, kElement, {1, tokens_, channels});
      input(inputs, std::string("weight_") + name, kElement, {channels, kWidth});
      for (const char* of : {"y_", "dy_", "dx_"}) {
        output(std::string(of) + name, kElement, {1, tokens_, channels});
      }
      output(std::string("dweight_") + name, kElement, {channels, kWidth});
    }
    input(inputs, "g", LATHE_F32, {1, tokens_, kHeads, kKeys});
    input(inputs, "beta", kElement, {1, tokens_, kHeads});
    input(inputs, "A_log", LATHE_F32, {kHeads});
    input(inputs, "initial_state", LATHE_F32, {kSequences, kHeads, kKeys, kValues});
    input(inputs, "do", kElement, {1, tokens_, kHeads, kValues});
    tensor("cu_seqlens", LATHE_I32, {kSequences + 1})
        .upload(Array(kOffsets.begin(), kOffsets.end()));
    output("o", kElement, {1, tokens_, kHeads, kValues});
    output("dg", LATHE_F32, {1, tokens_, kHeads, kKeys});
    output("dbeta", kElement, {1, tokens_, kHeads});
    output("dA_log", LATHE_F32, {kHeads});
  }

  Values run() {
    for (const char* name : {"q", "k", "v"}) conv(name, false);
    kda();
    for (const char* name : {"q", "k", "v"}) conv(name, true);
    API(lathe_stream_synchronize(context(), seat_.stream));
    if (seat_.group) API(lathe_group_error(seat_.group));
    operators_.clear();
    Values values;
    for (const std::string& name : outputs_) values[name] = tensors_.at(name)->download();
    return values;
  }

 private:
  Tensor& tensor(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape) {
    tensors_[name] = std::make_unique<Tensor>(context(), dtype, shape, Placement{}, seat_.stream);
    return *tensors_[name];
  }
  void input(const Inputs& inputs, const std::string& name, lathe_dtype dtype,
             const std::vector<int64_t>& shape) {
    Array values = inputs.values.at(name);
    if (shape[0] == 1) {
      const auto each = static_cast<std::ptrdiff_t>(values.size()) / kTokens;
      values = Array(values.begin() + seat_.begin * each, values.begin() + seat_.end * each);
    }
    tensor(name, dtype, shape).upload(values);
  }
  void output(const std::string& name, lathe_dtype dtype, const std::vector<int64_t>& shape) {
    tensor(name, dtype, shape).poison();
    outputs_.push_back(name);
  }
  Operator& next(const char* name) {
    return *operators_.emplace_back(std::make_unique<Operator>(seat_, name));
  }
  const Tensor& at(const std::string& name) const { return *tensors_.at(name); }

  void conv(const std::string& of, bool back) {
    Operator& op = next("causal_conv1d");
    op.set("activation", "silu");
    op.add("x", kElement, at(of));
    op.add("weight", kElement, at("weight_" + of));
    op.add("cu_seqlens", LATHE_I32, at("cu_seqlens"));
    if (back) {
      op.add("dy", kElement, at("dy_" + of));
      op.add("dx", kElement, at("dx_" + of));
      op.add("dweight", kElement, at("dweight_" + of));
    } else {
      op.add("y", kElement, at("y_" + of));
    }
    op.run();
  }
  // q, k and v are what the convolutions wrote, their gradients what they read.
  void kda() {
    Operator& op = next("kda");
    for (const char* name :
         {"use_qk_l2norm_in_kernel", "use_gate_in_kernel", "use_beta_sigmoid_in_kernel"}) {
      op.set(name, "1");
    }
    for (const std::string of : {"q", "k", "v"}) {
      const std::vector<int64_t> shape = {1, tokens_, kHeads, of == "v" ? kValues : kKeys};
      op.add(of.c_str(), kElement, at("y_" + of), shape);
      op.add(("d" + of).c_str(), kElement, at("dy_" + of), shape);
    }
    for (const char* name : {"beta", "do", "o", "dbeta"}) op.add(name, kElement, at(name));
    for (const char* name : {"g", "A_log", "initial_state", "dg", "dA_log"}) {
      op.add(name, LATHE_F32, at(name));
    }
    op.add("cu_seqlens", LATHE_I32, at("cu_seqlens"));
    op.run();
  }

  const Seat seat_;
  int64_t tokens_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<std::string> outputs_;
  std::vector<std::unique_ptr<Operator>> operators_;
};

void run_rank(int world, int rank, const std::array<char, LATHE_UNIQUE_ID_BYTES>& id,
              Values* values, std::exception_ptr* error) {
  try {
    lathe_group* group = nullptr;
    API(lathe_group_create(&group, context(), id.data(), world, rank, 20000));
    const Group owner(group);
    lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
    options.world = world, options.rank = rank, options.length = kTokens;
    options.cu_seqlens = kOffsets.data(), options.offsets = kOffsets.size();
    lathe_shard* shard = nullptr;
    API(lathe_shard_create_with(&shard, &options));
    const Shard shard_owner(shard);
    const Stream stream(context());
    Seat seat = {group, shard, stream.get(), 0, 0};
    API(lathe_shard_range(shard, &seat.begin, &seat.end));
    try {
      *values = Layer(seat).run();
    } catch (...) {
      (void)lathe_group_abort(group);  // the others would wait for this rank
      throw;
    }
  } catch (...) {
    *error = std::current_exception();
  }
}

// Parts of tokens one after another; sums are the same on every rank.
Values run_ranks(int world) {
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  API(lathe_unique_id(context(), id.data()));
  std::vector<Values> values(static_cast<size_t>(world));
  std::vector<std::exception_ptr> errors(values.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    const auto r = static_cast<size_t>(rank);
    threads.emplace_back([&, rank, r] { run_rank(world, rank, id, &values[r], &errors[r]); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  Values out = values[0];
  for (size_t r = 1; r < values.size(); ++r) {
    for (auto& [name, all] : out) {
      const Array& part = values[r].at(name);
      const bool sum = name == "dA_log" || name.starts_with("dweight");
      if (sum) CHECK(part == all);
      if (!sum) all.insert(all.end(), part.begin(), part.end());
    }
  }
  return out;
}

}  // namespace

TEST_CASE("a layer of convolutions and kda over ranks is that of one rank") {
  const Values one = Layer(Seat{}).run();
  for (const int world : {2, 3, 4}) {
    CAPTURE(world);
    const Values many = run_ranks(world);
    for (const auto& [name, values] : one) {
      if (name.starts_with("y_")) {
        CHECK(many.at(name) == values);
        continue;
      }
      const auto verdict =
          compare::compare(name, many.at(name), values, {static_cast<int64_t>(values.size())},
                           {compare::Rule::kRms, 8e-3, 1e-5});
      CHECK_MESSAGE(verdict.ok, verdict.text);
    }
  }
  check_no_findings();
}
