// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover tuned choices that others made: by the name of a GPU, out of bundles, over
// ranks.
#include <thread>

#include "tests/harness/tune_call.h"

using namespace tuning;

TEST_CASE("tune: without a device a choice is used by its GPU's name") {
  const Cache cache;
  Cache::store(
      record("x=f32 weight=f32 offsets=i32 width=4 vector=16 ring=12 silu=0 bias=0 residual=0 "
             "initial_state=0 final_state=0 packed=0 halo=0",
             "tokens=32 warps=4"));
  for (const char* gpu : {"h100", "sm_90a", "h200"}) {
    const auto context = test::make_context(LATHE_DEVICE_NONE, Cache::folder().path, gpu);
    Builder builder("causal_conv1d");
    builder.tensors({{"x", LATHE_F32, {-1, -1, 32}},
                     {"weight", LATHE_F32, {32, 4}},
                     {"y", LATHE_F32, {-1, -1, 32}}});
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context.get(), builder.problem.get()));
    const test::Plan plan(made);
    lathe_kernel_info info = {};
    info.size = sizeof(info);
    API(lathe_plan_kernel(made, 0, &info));
    CAPTURE(gpu);
    CHECK(is_made_of(info.spec, "tokens=32 warps=4") == (std::string(gpu) != "h200"));
  }
}

TEST_CASE("tune: choices travel with the kernels that were made by them") {
  const Cache cache;
  const std::string problem_class =
      "x=f32 weight=f32 offsets=i32 width=4 vector=16 ring=12 silu=0 bias=0 residual=0 "
      "initial_state=0 "
      "final_state=0 packed=0 halo=0";
  Cache::store(record(problem_class, "tokens=32 warps=8") +
               record("x=f16 width=4", "tokens=128 warps=4", "of_no_kernel"));
  const std::string bundle = Cache::folder().path + "/kernels.bundle";
  lathe_bundle_report packed = {};
  packed.size = sizeof(packed);
  {
    const auto context = Cache::open();
    CHECK(is_made_of(Conv(context.get()).spec(), "tokens=32 warps=8"));
    API(lathe_cache_pack(context.get(), bundle.c_str(), nullptr, 0, &packed));
    CHECK(contains(packed.information, "tuned=h100 | causal_conv1d | x=f32"));
    CHECK(!contains(packed.information, "of_no_kernel"));
  }
  const test::Folder elsewhere;
  setenv("LATHE_JIT", "off", 1);
  {
    setenv("LATHE_BUNDLES", bundle.c_str(), 1);
    const auto context = test::make_context(LATHE_DEVICE_SIM, elsewhere.path);
    REQUIRE_MESSAGE(context, error());
    CHECK(is_made_of(Conv(context.get()).spec(), "tokens=32 warps=8"));
    unsetenv("LATHE_BUNDLES");
  }
  {
    const auto context = test::make_context(LATHE_DEVICE_SIM, elsewhere.path);
    API(lathe_cache_unpack(context.get(), bundle.c_str(), nullptr));
    CHECK(is_made_of(Conv(context.get()).spec(), "tokens=32 warps=8"));
  }
  CHECK(std::filesystem::exists(elsewhere.path + "/v1/tuned/h100.txt"));
  unsetenv("LATHE_JIT");
}

namespace {

// One of two ranks: `body` with a group and a shard of the whole axis.
template <typename Body>
void on_ranks(const Body& body) {
  const auto first = Cache::open();
  char id[LATHE_UNIQUE_ID_BYTES];
  API(lathe_unique_id(first.get(), id));
  const auto rank_of = [&](int rank) {
    const auto context = Cache::open();
    lathe_group* made_group = nullptr;
    API(lathe_group_create(&made_group, context.get(), id, 2, rank, 20000));
    const test::Group group(made_group);
    lathe_shard* made_shard = nullptr;
    API(lathe_shard_create(&made_shard, 2, rank, 40, nullptr));
    const test::Shard shard(made_shard);
    body(rank, context.get(), group.get(), shard.get());
    CHECK(lathe_group_error(group.get()) == LATHE_OK);
  };
  std::thread other([&] { rank_of(1); });
  rank_of(0);
  other.join();
}

}  // namespace

TEST_CASE("tune: ranks try the same and choose the same") {
  const Cache cache;
  std::string choices[2], specs[2], before[2];
  on_ranks([&](int rank, lathe_context* context, lathe_group* group, lathe_shard* shard) {
    Conv conv(context, group, 20);
    before[rank] = conv.spec();
    lathe_tune_options options = LATHE_TUNE_OPTIONS_INIT;
    options.store = 1;
    CHECK(conv.refused(options) == LATHE_INVALID_ARGUMENT);
    CHECK(contains(error(), "options.shard"));
    options.shard = shard;
    options.candidates = 3;  // of each walk: over a part, and over pieces
    const lathe_tune_report report = conv.tune(options);
    CHECK(report.count == 6);
    choices[rank] = winner_of(report).choice;
    specs[rank] = conv.spec();
  });
  CHECK(choices[0] == choices[1]);
  CHECK(specs[0] == specs[1]);
  CHECK(is_made_of(specs[0], choices[0]));
  CHECK(contains(Cache::database(), "/2ranks"));
}

TEST_CASE("tune: ranks with other databases use none, until rank 0's is shared") {
  const Cache cache;
  const std::string problem_class =
      "x=f32 weight=f32 offsets=i32 width=4 vector=16 ring=12 silu=0 bias=0 residual=0 "
      "initial_state=0 "
      "final_state=0 packed=0 halo=1";
  std::string before[2], after[2];
  Cache::store(record(problem_class, "tokens=32 warps=4"));
  on_ranks([&](int rank, lathe_context* context, lathe_group* group, lathe_shard*) {
    if (rank == 1) {
      // A database of its own: what the file holds now is not what rank 0 has read.
      lathe_tuned_report report = {};
      report.size = sizeof(report);
      API(lathe_tuned_forget(context, nullptr, &report));
    }
    Conv conv(context, group, 20);
    before[rank] = conv.spec();
    API(lathe_group_share_tuned(group));
    after[rank] = conv.spec();
  });
  CHECK(before[0] == before[1]);
  CHECK(is_made_of(before[0], "tokens=64 warps=4"));
  CHECK(after[0] == after[1]);
  CHECK(is_made_of(after[0], "tokens=32 warps=4"));
}

TEST_CASE(
    "tune: a line that names a group is warmed for ranks that share choices and that do not") {
  const Cache cache;
  Cache::store(
      record("x=f32 weight=f32 offsets=i32 width=4 vector=16 ring=12 silu=0 bias=0 residual=0 "
             "initial_state=0 final_state=0 packed=0 halo=1",
             "tokens=32 warps=4"));
  const std::string line =
      R"({"op": "causal_conv1d", "tensors": {"x": ["f32", [-1, -1, 32]], "weight": ["f32", [32, 4]],
          "y": ["f32", [-1, -1, 32]]}, "group": {"world": 2}})";
  for (const char* gpu : {"h100", "h200"}) {
    CAPTURE(gpu);
    const auto context = test::make_context(LATHE_DEVICE_NONE, Cache::folder().path, gpu);
    lathe_problem* parsed = nullptr;
    API(lathe_problem_parse(&parsed, line.data(), line.size()));
    const test::Problem problem(parsed);
    lathe_warming* made = nullptr;
    API(lathe_warming_create(&made));
    const std::unique_ptr<lathe_warming, void (*)(lathe_warming*)> warming(made,
                                                                           lathe_warming_destroy);
    API(lathe_warming_add(made, context.get(), parsed));
    std::string specs;
    for (size_t i = 0; i < lathe_warming_kernel_count(made); ++i) {
      lathe_warming_kernel_info info = {};
      info.size = sizeof(info);
      API(lathe_warming_kernel(made, i, &info));
      specs += info.spec + std::string("\n");
    }
    CHECK(contains(specs, " tokens=64 "));
    // Another GPU has no choice to share.
    CHECK(contains(specs, " tokens=32 ") == (std::string(gpu) == "h100"));
    uint64_t compiled = 0, hits = 0;
    API(lathe_warm(context.get(), parsed, &compiled, &hits));
    CHECK(compiled + hits == lathe_warming_kernel_count(made));
  }
}
