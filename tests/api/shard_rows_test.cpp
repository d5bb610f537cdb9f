// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover shard and unshard through the C API: every layout and type, rows with gaps, in
// place; the ranks' shards of every balance put together again.
#include <doctest/doctest.h>

#include <functional>
#include <numeric>
#include <random>

#include "tests/harness/session.h"

using namespace apitest;

namespace {

using Values = std::vector<double>;

struct Mover {
  Mover(lathe_context* in, const char* op, lathe_dtype dtype, size_t rank, int axis, bool in_place)
      : context(in) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, op));
    const Problem owner(problem);
    const std::vector<int64_t> any(rank, -1);
    const auto declare = [&](const char* name, lathe_dtype type, size_t dims) {
      API(lathe_problem_tensor(problem, name, type, static_cast<int>(dims), any.data()));
    };
    if (in_place) {
      declare("buffer", dtype, rank);
    } else {
      declare("x", dtype, rank);
      declare("y", dtype, rank);
    }
    declare("indices", LATHE_I32, 1);
    API(lathe_problem_set_int(problem, "axis", axis));
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context, problem));
    plan.reset(made);
  }

  void run(const std::vector<std::pair<const char*, const Tensor*>>& tensors) const {
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan.get()));
    for (const auto& [name, tensor] : tensors) {
      size_t slot = 0;
      API(lathe_plan_slot(plan.get(), name, &slot));
      slots.at(slot) = tensor->dl();
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(plan.get(), slots.data(), nullptr, &bytes));
    const Memory workspace(context, bytes);
    if (bytes > 0) {
      CHECK(lathe_plan_run(plan.get(), slots.data(), workspace.data(), bytes - 1, nullptr) ==
            LATHE_INVALID_ARGUMENT);
    }
    API(lathe_plan_run(plan.get(), slots.data(), workspace.data(), bytes, nullptr));
    API(lathe_stream_synchronize(context, nullptr));
  }

  lathe_context* context;
  Plan plan;
};

// Returns the values of a dense tensor at `tokens` of an axis, walked in the order of the result.
Values taken(const Values& from, const std::vector<int64_t>& shape, int axis,
             const std::vector<int64_t>& tokens) {
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
  };
  const int64_t outer = product(shape.begin(), shape.begin() + axis);
  const int64_t inner = product(shape.begin() + axis + 1, shape.end());
  Values out;
  for (int64_t o = 0; o < outer; ++o) {
    for (const int64_t t : tokens) {
      for (int64_t i = 0; i < inner; ++i) out.push_back(from[(o * shape[axis] + t) * inner + i]);
    }
  }
  return out;
}

Values counted(const std::vector<int64_t>& shape) {
  Values out(static_cast<size_t>(
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>())));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<double>(i % 251) - 100;
  return out;
}

}  // namespace

TEST_CASE("shard takes what the indices say, unshard puts it back, for any layout") {
  const Context context = make_context();
  std::mt19937 random(2);
  struct Layout {
    std::vector<int64_t> shape;
    int axis;
    lathe_dtype dtype;
  };
  for (const Layout& layout : std::vector<Layout>{{{37}, 0, LATHE_I64},
                                                  {{37, 24}, 0, LATHE_F32},
                                                  {{3, 37}, 1, LATHE_F32},
                                                  {{37, 4, 64}, 0, LATHE_BF16},
                                                  {{2, 37, 40}, 1, LATHE_F16},
                                                  {{2, 5, 37}, 2, LATHE_F32},
                                                  {{2, 37, 3, 72}, 1, LATHE_BF16},
                                                  {{2, 3, 37, 4}, 2, LATHE_I32},
                                                  {{37, 2, 3, 5}, 0, LATHE_F16},
                                                  {{2, 3, 4, 37}, 3, LATHE_BF16}}) {
    const auto& [shape, axis, dtype] = layout;
    INFO("rank " << shape.size() << " axis " << axis);
    const bool gaps = shape.size() > 1;
    const Placement place{.token_gap = gaps ? 8 : 0, .offset = 16, .guard = 32};
    std::vector<int64_t> tokens(37);
    std::iota(tokens.begin(), tokens.end(), 0);
    std::shuffle(tokens.begin(), tokens.end(), random);
    const Values whole = counted(shape);
    const auto indices = [&](const std::vector<int64_t>& from) {
      Tensor out(context.get(), LATHE_I32, {static_cast<int64_t>(from.size())});
      out.upload(Values(from.begin(), from.end()));
      return out;
    };
    const Mover shard(context.get(), "shard", dtype, shape.size(), axis, false);
    const Mover unshard(context.get(), "unshard", dtype, shape.size(), axis, false);
    Tensor x(context.get(), dtype, shape, place), back(context.get(), dtype, shape, place);
    x.upload(whole);
    back.upload(Values(whole.size(), 7));
    // One plan for shards of any length, none too; together they hold everything.
    for (const auto& [begin, end] : {std::pair(0, 20), std::pair(20, 20), std::pair(20, 37)}) {
      const std::vector<int64_t> mine(tokens.begin() + begin, tokens.begin() + end);
      std::vector<int64_t> some = shape;
      some[axis] = end - begin;
      const Tensor index = indices(mine);
      Tensor y(context.get(), dtype, some, place);
      y.poison();
      shard.run({{"x", &x}, {"indices", &index}, {"y", &y}});
      CHECK(y.download() == taken(whole, shape, axis, mine));
      unshard.run({{"x", &y}, {"indices", &index}, {"y", &back}});
    }
    CHECK(back.download() == whole);

    const Tensor index = indices(tokens);
    const Mover there(context.get(), "shard", dtype, shape.size(), axis, true);
    const Mover home(context.get(), "unshard", dtype, shape.size(), axis, true);
    there.run({{"buffer", &x}, {"indices", &index}});
    CHECK(x.download() == taken(whole, shape, axis, tokens));
    home.run({{"buffer", &x}, {"indices", &index}});
    CHECK(x.download() == whole);
  }
  CHECK(take_report().findings == std::vector<std::string>{});
}

TEST_CASE("the shards of all ranks are every token once, whatever the balance") {
  const std::vector<int64_t> cu = {0, 9, 9, 40, 61};
  for (const lathe_balance balance : {LATHE_BALANCE_NONE, LATHE_BALANCE_HEAD_TAIL,
                                      LATHE_BALANCE_PER_DOCUMENT, LATHE_BALANCE_PTRR}) {
    std::vector<int> held(61);
    for (int rank = 0; rank < 3; ++rank) {
      lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
      options.world = 3, options.rank = rank, options.balance = balance;
      options.length = 61, options.block_size = 4;
      options.cu_seqlens = cu.data(), options.offsets = cu.size();
      lathe_shard* made = nullptr;
      API(lathe_shard_create_with(&made, &options));
      const Shard shard(made);
      const int64_t* ends = nullptr;
      size_t count = 0, tokens = 0;
      API(lathe_shard_intervals(made, LATHE_KEYS, &ends, &count));
      std::vector<int32_t> mine(61, -1);
      API(lathe_shard_indices(made, LATHE_KEYS, mine.data(), mine.size()));
      for (size_t i = 0; i < count; ++i) {
        for (int64_t t = ends[2 * i]; t < ends[2 * i + 1]; ++t) {
          CHECK(mine[tokens++] == t);
          ++held[t];
        }
      }
      CHECK(lathe_shard_indices(made, LATHE_KEYS, mine.data(), tokens - 1) ==
            LATHE_INVALID_ARGUMENT);
      CHECK(lathe_shard_indices(made, static_cast<lathe_axis>(2), mine.data(), 61) ==
            LATHE_INVALID_ARGUMENT);
    }
    CHECK(held == std::vector<int>(61, 1));
  }
}

TEST_CASE("what shard and unshard cannot do is refused with the value") {
  const Context context = make_context();
  CHECK_THROWS_WITH(Mover(context.get(), "shard", LATHE_F32, 2, 2, false),
                    doctest::Contains("axis is 2, but x has rank 2"));
  const Mover shard(context.get(), "shard", LATHE_F32, 1, 0, true);
  Tensor buffer(context.get(), LATHE_F32, {5}), indices(context.get(), LATHE_I32, {4});
  CHECK_THROWS_WITH(shard.run({{"buffer", &buffer}, {"indices", &indices}}),
                    doctest::Contains("T = 5 tokens and indices S = 4"));
}
