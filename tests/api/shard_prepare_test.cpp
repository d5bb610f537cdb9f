// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks that are about to run different things are told so, all of them, before the first hop.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <thread>

#include "tests/harness/session.h"

using namespace apitest;

namespace {

// A Wish says what one rank declares and how it cuts; tests change rank 1's.
struct Wish {
  lathe_dtype dtype = LATHE_F32;
  const char* activation = "none";
  bool bias = false;
  std::vector<int64_t> offsets = {0, 5, 12};
  std::vector<int64_t> bounds = {0, 6, 12};
  unsigned flags = 0;
};

Plan make_plan(lathe_context* context, lathe_group* group, const Wish& wish) {
  lathe_problem* raw = nullptr;
  API(lathe_problem_create(&raw, "causal_conv1d"));
  const Problem problem(raw);
  const int64_t rows[] = {-1, -1, 16}, taps[] = {16, 4}, bias[] = {16};
  API(lathe_problem_tensor(raw, "x", wish.dtype, 3, rows));
  API(lathe_problem_tensor(raw, "weight", wish.dtype, 2, taps));
  API(lathe_problem_tensor(raw, "y", wish.dtype, 3, rows));
  if (wish.bias) API(lathe_problem_tensor(raw, "bias", wish.dtype, 1, bias));
  API(lathe_problem_set_string(raw, "activation", wish.activation));
  API(lathe_problem_group(raw, group, wish.flags));
  lathe_plan* plan = nullptr;
  API(lathe_plan_create(&plan, context, raw));
  return Plan(plan);
}

Shard make_shard(int rank, const Wish& wish) {
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = 2;
  options.rank = rank;
  options.length = 12;
  options.cu_seqlens = wish.offsets.data();
  options.offsets = wish.offsets.size();
  options.bounds = wish.bounds.data();
  lathe_shard* shard = nullptr;
  API(lathe_shard_create_with(&shard, &options));
  return Shard(shard);
}

// Each rank's message from lathe_shard_prepare, empty for OK.
std::array<std::string, 2> prepare(const Wish& first, const Wish& second) {
  std::array<char, LATHE_UNIQUE_ID_BYTES> id{};
  {
    const Context context = make_context();
    API(lathe_unique_id(context.get(), id.data()));
  }
  std::array<std::string, 2> said;
  const auto run = [&](int rank, const Wish& wish) {
    try {
      const Context context = make_context();
      lathe_group* raw = nullptr;
      API(lathe_group_create(&raw, context.get(), id.data(), 2, rank, 20000));
      const Group group(raw);
      const Plan plan = make_plan(context.get(), raw, wish);
      const Shard shard = make_shard(rank, wish);
      const lathe_status status = lathe_shard_prepare(shard.get(), plan.get());
      if (status != LATHE_OK) {
        said[rank] = std::string(lathe_status_name(status)) + ": " + lathe_last_error();
      }
    } catch (const std::exception& error) {
      said[rank] = error.what();
    }
  };
  std::thread other(run, 1, second);
  run(0, first);
  other.join();
  return said;
}

}  // namespace

TEST_CASE("ranks that agree prepare, as often as they like") {
  const auto said = prepare({}, {});
  CHECK(said[0] == "");
  CHECK(said[1] == "");
}

TEST_CASE("what differs is named on every rank") {
  const auto check = [](const std::function<void(Wish*)>& change, const std::string& name) {
    Wish other;
    change(&other);
    for (const std::string& said : prepare({}, other)) {
      CHECK_MESSAGE(said.find("INVALID_ARGUMENT: " + name) == 0, said);
      CHECK_MESSAGE(said.find("rank 1") != said.npos, said);
    }
  };
  check([](Wish* w) { w->dtype = LATHE_F16; }, "the declared tensors");
  check([](Wish* w) { w->bias = true; }, "the declared tensors");
  check([](Wish* w) { w->activation = "silu"; }, "the options");
  check([](Wish* w) { w->flags = LATHE_REDUCE_PARAMETER_GRADS; }, "the group's flags");
  check([](Wish* w) { w->offsets = {0, 4, 12}; }, "cu_seqlens");
  check([](Wish* w) { w->bounds = {0, 7, 12}; }, "the cut of queries");
}
