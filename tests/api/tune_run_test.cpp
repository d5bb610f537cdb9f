// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover lathe_tune on the simulator, by its model's time: what is tried, kept, stored
// and used by later plans.
#include <cstring>
#include <set>

#include "tests/harness/tune_call.h"

using namespace tuning;

TEST_CASE("tune: all tiles are tried, the winner is stored and used") {
  const Cache cache;
  const auto context = Cache::open();
  Conv conv(context.get());
  const std::string usual = conv.spec();
  const Values before = conv.get("y");
  lathe_tune_options options = LATHE_TUNE_OPTIONS_INIT;
  options.store = 1;
  const lathe_tune_report report = conv.tune(options);
  CHECK(report.kernels == 1);
  CHECK(report.by_model == 1);
  CHECK(report.cancelled == 0);
  CHECK(std::string(report.gpu) == "h100");
  CHECK(report.us <= report.default_us);
  REQUIRE(report.count == 6);
  std::set<std::string> choices;
  for (size_t i = 0; i < report.count; ++i) {
    const lathe_tune_candidate& each = report.candidates[i];
    choices.insert(each.choice);
    CHECK(std::string(each.kernel) == "causal_conv1d");
    CHECK_MESSAGE(std::string(each.reason) == "", each.reason);
    CHECK(each.microseconds > 0);
    CHECK(each.registers > 0);
    CHECK(each.microseconds >= 0.98 * report.us);
  }
  CHECK(choices.size() == 6);
  CHECK(is_made_of(usual, report.candidates[0].choice));
  CHECK(std::string(report.stored_in) == Cache::file());
  // The caller's outputs are as they were.
  const Values after = conv.get("y");
  CHECK(std::memcmp(after.data(), before.data(), after.size() * 4) == 0);

  const std::string choice = winner_of(report).choice;
  CHECK(contains(Cache::database(), "| " + choice + " | gpu=h100 arch=sm_90a sms=132"));
  CHECK(contains(Cache::database(), "by=model tried=6"));
  CHECK(is_made_of(conv.spec(), choice));
  const auto later = Cache::open();
  CHECK(is_made_of(Conv(later.get()).spec(), choice));
}

TEST_CASE("tune: nothing is stored unless asked, or when it was ended") {
  const Cache cache;
  const auto context = Cache::open();
  Conv conv(context.get());
  lathe_tune_options options = LATHE_TUNE_OPTIONS_INIT;
  options.candidates = 2;
  const lathe_tune_report report = conv.tune(options);
  CHECK(report.count == 2);
  CHECK(std::string(report.stored_in) == "");
  CHECK(!std::filesystem::exists(Cache::file()));
  options.store = 1;
  size_t calls = 0;
  options.user = &calls;
  options.progress = [](void* user, const char* what, size_t, size_t) {
    return contains(what, "causal_conv1d: ") && ++*static_cast<size_t*>(user) == 3 ? 1 : 0;
  };
  CHECK(conv.tune(options).cancelled == 1);
  CHECK(calls >= 3);
  CHECK(!std::filesystem::exists(Cache::file()));
}

TEST_CASE("tune: a stored choice makes another kernel of the same results") {
  const Cache cache;
  std::string problem_class, usual;
  Values expected;
  const auto run = [](Conv& conv) {
    const test::Plan plan = conv.plan();
    const auto slots = conv.slots(plan.get());
    API(lathe_plan_run(plan.get(), slots.data(), nullptr, 0, nullptr));
    API(lathe_stream_synchronize(conv.context, nullptr));
    return conv.get("y");
  };
  {
    const auto context = Cache::open();
    Conv conv(context.get());
    lathe_tune_options options = LATHE_TUNE_OPTIONS_INIT;
    options.candidates = 1;
    problem_class = conv.tune(options).candidates[0].problem_class;
    usual = conv.spec();
    expected = run(conv);
  }
  Cache::store(record(problem_class, "tokens=32 warps=8"));
  const auto context = Cache::open();
  Conv conv(context.get());
  CHECK(is_made_of(conv.spec(), "tokens=32 warps=8"));
  CHECK(conv.spec() != usual);
  const Values found = run(conv);
  CHECK(std::memcmp(found.data(), expected.data(), found.size() * 4) == 0);

  lathe_tuned_report report = {};
  report.size = sizeof(report);
  const char* lines = nullptr;
  API(lathe_tuned_list(context.get(), &lines, &report));
  CHECK(contains(lines, "stale\t" + Cache::file() + "\tcausal_conv1d | "));
  CHECK(report.records == 1);
  CHECK(report.used > 0);

  SUBCASE("a choice that is not offered is ignored and counted") {
    Cache::store(record(problem_class, "tokens=999 warps=8"));
    const auto other = Cache::open();
    CHECK(Conv(other.get()).spec() == usual);
    API(lathe_tuned_list(other.get(), &lines, &report));
    CHECK(report.ignored > 0);
    CHECK(report.used == 0);
  }
  SUBCASE("LATHE_TUNED=off") {
    setenv("LATHE_TUNED", "off", 1);
    const auto other = Cache::open();
    unsetenv("LATHE_TUNED");
    CHECK(Conv(other.get()).spec() == usual);
  }
  SUBCASE("LATHE_TUNED=FILE") {
    const std::string path = Cache::folder().path + "/mine.txt";
    std::ofstream(path) << "lathe-tuned 1\n" << record(problem_class, "tokens=128 warps=2");
    setenv("LATHE_TUNED", path.c_str(), 1);
    const auto other = Cache::open();
    Conv tuned(other.get());
    CHECK(is_made_of(tuned.spec(), "tokens=128 warps=2"));
    lathe_tune_options options = LATHE_TUNE_OPTIONS_INIT;
    options.store = 1;
    CHECK(tuned.refused(options) == LATHE_INVALID_ARGUMENT);
    CHECK(contains(error(), "LATHE_TUNED"));
    unsetenv("LATHE_TUNED");
  }
  SUBCASE("forgotten, and merged again") {
    const std::string path = Cache::folder().path + "/shipped.txt";
    std::ofstream(path) << "lathe-tuned 1\n"
                        << record(problem_class, "tokens=128 warps=4")
                        << record("x=f16", "tokens=1 warps=1", "another") << "nonsense\n";
    API(lathe_tuned_forget(context.get(), nullptr, &report));
    CHECK(report.changed == 1);
    CHECK(conv.spec() == usual);
    API(lathe_tuned_merge(context.get(), path.c_str(), &report));
    CHECK(report.changed == 2);
    CHECK(report.skipped == 1);
    CHECK(is_made_of(conv.spec(), "tokens=128 warps=4"));
    API(lathe_tuned_merge(context.get(), path.c_str(), &report));
    CHECK(report.changed == 0);
    API(lathe_tuned_forget(context.get(), "causal_conv1d", &report));
    CHECK(report.changed == 1);
    CHECK(report.records == 1);
    CHECK(lathe_tuned_merge(context.get(), "/nowhere/at/all", nullptr) == LATHE_CACHE_IO);
  }
}

TEST_CASE("tune: what cannot be tuned is refused, by name") {
  const Cache cache;
  const auto context = Cache::open();
  Conv conv(context.get());
  lathe_tune_options options = LATHE_TUNE_OPTIONS_INIT;
  options.repeats = -1;
  CHECK(conv.refused(options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "repeats is -1"));
  options.repeats = 0;
  unsetenv("LATHE_SIM_TIMELINE");
  CHECK(conv.refused(options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "LATHE_SIM_TIMELINE"));
  setenv("LATHE_SIM_TIMELINE", "/dev/null", 1);
  setenv("LATHE_SIM_SAMPLE_BLOCKS", "4", 1);
  CHECK(conv.refused(options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "LATHE_SIM_SAMPLE_BLOCKS"));
  unsetenv("LATHE_SIM_SAMPLE_BLOCKS");
  const auto none = test::make_context(LATHE_DEVICE_NONE, Cache::folder().path);
  lathe_tune_report report = {};
  report.size = sizeof(report);
  const DLTensor* slots[3] = {};
  CHECK(lathe_tune(none.get(), conv.builder.problem.get(), slots, nullptr, &report) ==
        LATHE_NO_DEVICE);
  CHECK(lathe_tune(context.get(), conv.builder.problem.get(), slots, nullptr, &report) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "slots[0] is NULL"));
}

TEST_CASE("tune: what is in and out keeps its value") {
  const Cache cache;
  const auto context = Cache::open();
  constexpr int64_t kHeads = 2, kWidth = 32, kSequences = 2;
  std::map<std::string, Array> arrays;
  Builder builder("kda_recurrent");
  std::vector<void*> memory;
  const auto put = [&](const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
                       float scale) {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    Values values = pattern(count, static_cast<int>(count));
    for (float& value : values) value *= scale;
    std::vector<int32_t> indices = {1, 0};
    const void* from = dtype == LATHE_F32 ? static_cast<void*>(values.data()) : indices.data();
    void* data = nullptr;
    API(lathe_malloc(context.get(), &data, count * 4));
    API(lathe_copy_to_device(context.get(), data, from, count * 4, nullptr));
    memory.push_back(data);
    arrays[name] = Array(dtype, shape, data);
    builder.tensor({name, dtype, shape});
    return values;
  };
  for (const char* name : {"q", "k", "v"}) {
    put(name, LATHE_F32, {kSequences, 1, kHeads, kWidth}, 0.2f);
  }
  put("g", LATHE_F32, {kSequences, 1, kHeads, kWidth}, -0.0f);
  put("beta", LATHE_F32, {kSequences, 1, kHeads}, 0.1f);
  put("o", LATHE_F32, {kSequences, 1, kHeads, kWidth}, 0);
  const Values pool = put("state_pool", LATHE_F32, {2, kHeads, kWidth, kWidth}, 1);
  put("state_indices", LATHE_I32, {kSequences}, 1);
  REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
  lathe_plan* made = nullptr;
  API(lathe_plan_create(&made, context.get(), builder.problem.get()));
  const test::Plan plan(made);
  const auto slots = test::slots_of(made, arrays);
  lathe_tune_report report = {};
  report.size = sizeof(report);
  API(lathe_tune(context.get(), builder.problem.get(), slots.data(), nullptr, &report));
  CHECK(report.kernels == 1);
  CHECK(report.count > 1);
  for (size_t i = 0; i < report.count; ++i) {
    CHECK_MESSAGE(std::string(report.candidates[i].reason) == "", report.candidates[i].reason);
  }
  Values found(pool.size());
  API(lathe_copy_to_host(context.get(), found.data(), arrays.at("state_pool").view.data,
                         found.size() * 4, nullptr));
  CHECK(std::memcmp(found.data(), pool.data(), found.size() * 4) == 0);
  for (void* each : memory) API(lathe_free(context.get(), each));
}
