// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// lathe_tune on the simulator, by its model's time: what is tried, kept, stored and used by later
// plans, alone and over ranks.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "tests/api/support.h"

namespace {

using test::Array;
using test::Builder;
using test::contains;
using test::error;
using Values = std::vector<float>;

#define API(call) REQUIRE_MESSAGE((call) == LATHE_OK, #call ": ", error())

// The simulator reads it when it is opened, which is once in a process.
const bool kTimeline = setenv("LATHE_SIM_TIMELINE", "/dev/null", 1) == 0;
// Memory that is never freed, and all else that it finds, is a failure of the program.
const bool kFindings =
    setenv("LATHE_SIM_CHECK", "all", 1) == 0 && setenv("LATHE_SIM_ERROR_EXITCODE", "9", 1) == 0;

// A cache of its own for each case would compile everything again: kernels are shared through a
// first folder, whose database goes before each case.
struct Cache {
  static const test::Folder& folder() {
    static const test::Folder shared;
    return shared;
  }
  Cache() { std::filesystem::remove_all(folder().path + "/v1/tuned"); }
  static test::Context open() {
    REQUIRE((kTimeline && kFindings));
    auto context = test::make_context(LATHE_DEVICE_SIM, folder().path);
    REQUIRE_MESSAGE(context, error());
    return context;
  }
  static std::string file() { return folder().path + "/v1/tuned/h100.txt"; }
  static std::string database() {
    std::ifstream in(file());
    std::ostringstream all;
    all << in.rdbuf();
    return all.str();
  }
  static void store(const std::string& records) {
    std::filesystem::create_directories(folder().path + "/v1/tuned");
    for (const char* part : {"/v1", "/v1/tuned"}) {
      std::filesystem::permissions(folder().path + part, std::filesystem::perms::owner_all);
    }
    std::ofstream(file()) << "lathe-tuned 1\n" << records;
  }
};

std::string record(const std::string& problem_class, const std::string& choice,
                   const std::string& kernel = "causal_conv1d") {
  return kernel + " | " + problem_class + " | " + choice +
         " | gpu=h100 arch=sm_90a sms=132 shape=a(x:1) us=1.000 default_us=2.000 by=events\n";
}

Values pattern(size_t count, int seed) {
  Values values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] =
        static_cast<float>(static_cast<int>((i * 37 + static_cast<size_t>(seed) * 101) % 64) - 32) /
        16.0f;
  }
  return values;
}

// A convolution's tensors on the device, and its problem.
struct Conv {
  static constexpr int64_t kTokens = 40, kChannels = 32;
  lathe_context* context;
  std::map<std::string, Array> arrays;
  Builder builder{"causal_conv1d"};

  explicit Conv(lathe_context* on, lathe_group* group = nullptr, int64_t tokens = kTokens)
      : context(on) {
    put("x", {1, tokens, kChannels}, pattern(static_cast<size_t>(tokens * kChannels), 1), -1);
    put("weight", {kChannels, 4}, pattern(kChannels * 4, 2), kChannels);
    put("y", {1, tokens, kChannels}, Values(static_cast<size_t>(tokens * kChannels), NAN), -1);
    REQUIRE_MESSAGE(builder.status == LATHE_OK, error());
    if (group) API(lathe_problem_group(builder.problem.get(), group, 0));
  }
  ~Conv() {
    for (auto& [name, array] : arrays) lathe_free(context, array.view.data);
  }
  void put(const std::string& name, std::vector<int64_t> shape, const Values& values,
           int64_t open) {
    void* data = nullptr;
    API(lathe_malloc(context, &data, values.size() * sizeof(float)));
    API(lathe_copy_to_device(context, data, values.data(), values.size() * sizeof(float), nullptr));
    arrays[name] = Array(LATHE_F32, shape, data);
    if (open < 0) shape[0] = shape[1] = -1;
    builder.tensor({name, LATHE_F32, shape});
  }
  Values get(const std::string& name) {
    const Array& array = arrays.at(name);
    size_t count = 1;
    for (const int64_t extent : array.shape) count *= static_cast<size_t>(extent);
    Values values(count);
    API(lathe_copy_to_host(context, values.data(), array.view.data, count * 4, nullptr));
    return values;
  }
  test::Plan plan() {
    lathe_plan* made = nullptr;
    API(lathe_plan_create(&made, context, builder.problem.get()));
    return test::Plan(made);
  }
  std::vector<const DLTensor*> slots(const lathe_plan* of) {
    std::vector<const DLTensor*> all(lathe_plan_slot_count(of));
    for (auto& [name, array] : arrays) {
      size_t slot = 0;
      API(lathe_plan_slot(of, name.c_str(), &slot));
      all.at(slot) = array.get();
    }
    return all;
  }
  std::string spec() {
    const test::Plan made = plan();
    lathe_kernel_info info = {};
    info.size = sizeof(info);
    API(lathe_plan_kernel(made.get(), 0, &info));
    return info.spec;
  }
  lathe_tune_report tune(lathe_tune_options options) {
    const auto all = slots(plan().get());
    lathe_tune_report report = {};
    report.size = sizeof(report);
    const lathe_status status =
        lathe_tune(context, builder.problem.get(), all.data(), &options, &report);
    REQUIRE_MESSAGE(status == LATHE_OK, error());
    return report;
  }
  lathe_status refused(lathe_tune_options options) {
    const auto all = slots(plan().get());
    lathe_tune_report report = {};
    report.size = sizeof(report);
    return lathe_tune(context, builder.problem.get(), all.data(), &options, &report);
  }
};

// "tokens=64 warps=4" as the words of a spec.
bool is_made_of(const std::string& spec, const std::string& choice) {
  const size_t warps = choice.rfind("warps=");
  const std::string threads =
      " threads=" + std::to_string(32 * std::stoi(choice.substr(warps + 6))) + " ";
  return contains(spec, threads) && contains(spec, " " + choice.substr(0, warps));
}

const lathe_tune_candidate& winner_of(const lathe_tune_report& report) {
  for (size_t i = 0; i < report.count; ++i) {
    const std::string verdict = report.candidates[i].verdict;
    if (verdict == "won" || verdict == "default") return report.candidates[i];
  }
  REQUIRE(false);
  return report.candidates[0];
}

}  // namespace

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

TEST_CASE("tune: without a device a choice is used by its GPU's name") {
  const Cache cache;
  Cache::store(
      record("x=f32 weight=f32 offsets=i32 width=4 vector=16 silu=0 bias=0 residual=0 "
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
      "x=f32 weight=f32 offsets=i32 width=4 vector=16 silu=0 bias=0 residual=0 initial_state=0 "
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
    options.candidates = 3;
    const lathe_tune_report report = conv.tune(options);
    CHECK(report.count == 3);
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
      "x=f32 weight=f32 offsets=i32 width=4 vector=16 silu=0 bias=0 residual=0 initial_state=0 "
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
  std::vector<const DLTensor*> slots(lathe_plan_slot_count(made));
  for (auto& [name, array] : arrays) {
    size_t slot = 0;
    API(lathe_plan_slot(made, name.c_str(), &slot));
    slots.at(slot) = array.get();
  }
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
