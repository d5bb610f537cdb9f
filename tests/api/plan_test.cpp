// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover plans without a device: kernels, texts, workspace, estimates, and what compiles
// anew.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <memory>

#include "tests/harness/support.h"

namespace {

using test::Array;
using test::Builder;
using test::contains;
using test::error;

constexpr lathe_dtype kType = LATHE_BF16;

Builder forward(int64_t channels, int64_t width = 4, const char* activation = "silu") {
  Builder builder("causal_conv1d");
  builder.tensors({{"x", kType, {-1, -1, channels}},
                   {"weight", kType, {channels, width}},
                   {"y", kType, {-1, -1, channels}}});
  builder.set("activation", activation);
  return builder;
}

test::Plan make_plan(const test::Context& context, const Builder& builder) {
  lathe_plan* plan = nullptr;
  const lathe_status status = lathe_plan_create(&plan, context.get(), builder.problem.get());
  REQUIRE_MESSAGE(status == LATHE_OK, error());
  return test::Plan(plan);
}

lathe_context_info info_of(const test::Context& context) {
  lathe_context_info info = {};
  info.size = sizeof(info);
  REQUIRE(lathe_context_get_info(context.get(), &info) == LATHE_OK);
  return info;
}

std::string key_of(const test::Plan& plan) {
  lathe_kernel_info info = {};
  info.size = sizeof(info);
  REQUIRE(lathe_plan_kernel(plan.get(), 0, &info) == LATHE_OK);
  return info.key;
}

TEST_CASE("a plan describes its kernels and lends their texts") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  REQUIRE_MESSAGE(context, error());
  const auto plan = make_plan(context, forward(4096));
  REQUIRE(lathe_plan_kernel_count(plan.get()) == 1);
  lathe_kernel_info info = {};
  info.size = sizeof(info);
  REQUIRE(lathe_plan_kernel(plan.get(), 0, &info) == LATHE_OK);
  CHECK(std::string(info.name) == "causal_conv1d");
  CHECK(contains(info.spec, "width=4"));
  CHECK(std::strlen(info.key) == 32);
  CHECK(std::string(info.from) == "compiler");
  CHECK(info.threads > 0);
  CHECK(std::string(info.family) == "portable");
  CHECK(std::string(info.family_reason) == "");
  CHECK(info.registers > 0);
  CHECK(info.spill_bytes == 0);

  const char* found = nullptr;
  size_t size = 0;
  REQUIRE(lathe_plan_kernel_text(plan.get(), 0, LATHE_TEXT_SOURCE, &found, &size) == LATHE_OK);
  CHECK(contains(found, "#include \"conv/causal_conv1d.cuh\""));
  CHECK(size == std::strlen(found));
  REQUIRE(lathe_plan_kernel_text(plan.get(), 0, LATHE_TEXT_PTX, &found, nullptr) == LATHE_OK);
  CHECK(contains(found, ".target sm_90a"));
  REQUIRE(lathe_plan_kernel_text(plan.get(), 0, LATHE_TEXT_KEY, &found, &size) == LATHE_OK);
  CHECK(contains(found, info.spec));
  REQUIRE(lathe_plan_kernel_text(plan.get(), 0, LATHE_TEXT_REMARKS, &found, &size) == LATHE_OK);
  CHECK(std::string(found) == "");
  CHECK(size == 0);
  REQUIRE(lathe_plan_kernel_text(plan.get(), 0, LATHE_TEXT_CUBIN, &found, &size) == LATHE_OK);
  CHECK(contains(std::string(found, size), "ELF"));
  CHECK(size > 1000);
  CHECK(lathe_plan_kernel_text(plan.get(), 0, static_cast<lathe_text>(9), &found, &size) ==
        LATHE_INVALID_ARGUMENT);
  CHECK(lathe_plan_kernel(plan.get(), 1, &info) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "1 kernels"));

  const lathe_context_info about = info_of(context);
  CHECK(about.device == LATHE_DEVICE_NONE);
  CHECK(std::string(about.arch) == "sm_90a");
  CHECK(std::string(about.device_name) == "");
  CHECK(contains(about.compiler, "nvrtc"));
  CHECK(about.compiled == 1);
  CHECK(about.hits == 0);
}

TEST_CASE("lengths compile nothing; width, dtype, options and alignment classes do") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  REQUIRE_MESSAGE(context, error());
  const auto first = make_plan(context, forward(4096));
  Builder fixed("causal_conv1d");
  fixed.tensors(
      {{"x", kType, {3, 777, 4096}}, {"weight", kType, {4096, 4}}, {"y", kType, {3, 777, 4096}}});
  fixed.set("activation", "silu");
  const auto same = make_plan(context, fixed);
  CHECK(key_of(first) == key_of(same));
  CHECK(key_of(first) == key_of(make_plan(context, forward(2048))));
  CHECK(info_of(context).compiled == 1);
  CHECK(info_of(context).hits == 2);

  CHECK(key_of(first) != key_of(make_plan(context, forward(4096, 3))));
  CHECK(key_of(first) != key_of(make_plan(context, forward(4095))));
  CHECK(key_of(first) != key_of(make_plan(context, forward(4096, 4, "none"))));
  CHECK(info_of(context).compiled == 4);
}

TEST_CASE("warming fills the cache for a later context") {
  const test::Folder folder;
  uint64_t compiled = 9, hits = 9;
  const Builder builder = forward(64, 2);
  {
    const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path, "sm_80");
    REQUIRE(lathe_warm(context.get(), builder.problem.get(), &compiled, &hits) == LATHE_OK);
    CHECK(compiled == 1);
    CHECK(hits == 0);
  }
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path, "sm_80");
  REQUIRE(lathe_warm(context.get(), builder.problem.get(), &compiled, &hits) == LATHE_OK);
  CHECK(compiled == 0);
  CHECK(hits == 1);

  lathe_cache_info info = {};
  info.size = sizeof(info);
  REQUIRE(lathe_cache_stat(context.get(), &info) == LATHE_OK);
  CHECK(info.entries == 1);
  CHECK(info.hits == 1);
  CHECK(contains(info.directory, folder.path));
  uint64_t checked = 0, removed = 9;
  const char* problems = nullptr;
  REQUIRE(lathe_cache_verify(context.get(), &checked, &removed, &problems) == LATHE_OK);
  CHECK(checked == 1);
  CHECK(removed == 0);
  CHECK(std::string(problems) == "");
}

TEST_CASE("workspace, slots and estimate follow from shapes") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  Builder builder("causal_conv1d");
  builder.tensors({{"x", kType, {-1, -1, 64}},
                   {"weight", LATHE_F32, {64, 4}},
                   {"dy", kType, {-1, -1, 64}},
                   {"dx", kType, {-1, -1, 64}},
                   {"dweight", LATHE_F32, {64, 4}}});
  const auto plan = make_plan(context, builder);
  CHECK(lathe_plan_slot_count(plan.get()) == 5);

  std::vector<Array> arrays(5);
  std::vector<const DLTensor*> slots(5);
  const auto fill = [&](int64_t tokens) {
    for (const char* name : {"x", "weight", "dy", "dx", "dweight"}) {
      const bool weight = contains(name, "weight");
      size_t slot = 99;
      REQUIRE(lathe_plan_slot(plan.get(), name, &slot) == LATHE_OK);
      arrays[slot] = weight ? Array(LATHE_F32, {64, 4}) : Array(kType, {2, tokens, 64});
      slots[slot] = arrays[slot].get();
    }
  };
  fill(1000);
  size_t bytes = 0, none = 99;
  REQUIRE_MESSAGE(lathe_plan_workspace(plan.get(), slots.data(), nullptr, &bytes) == LATHE_OK,
                  error());
  CHECK(bytes >= 2 * 5 * 64 * 4);  // at least one tile in each row of the batch
  CHECK(bytes % 256 == 0);
  lathe_estimate estimate = {};
  estimate.size = sizeof(estimate);
  REQUIRE(lathe_plan_estimate(plan.get(), slots.data(), nullptr, &estimate) == LATHE_OK);
  CHECK(estimate.launches == 2);
  CHECK(estimate.minimum_bytes >= 3 * 2 * 1000 * 64 * 2);
  CHECK(estimate.bytes >= estimate.minimum_bytes);
  CHECK(std::string(estimate.bound) == "launch");
  CHECK(estimate.microseconds > 0);

  fill(0);
  REQUIRE(lathe_plan_workspace(plan.get(), slots.data(), nullptr, &none) == LATHE_OK);
  CHECK(none == 0);

  size_t slot = 99;
  CHECK(lathe_plan_slot(plan.get(), "y", &slot) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "no tensor 'y'; declared are x, weight"));
  CHECK(slot == 99);
  CHECK(lathe_plan_run(plan.get(), slots.data(), nullptr, 0, nullptr) == LATHE_NO_DEVICE);
  CHECK(contains(error(), "LATHE_DEVICE_NONE"));
}

TEST_CASE("contexts refuse what they cannot be") {
  lathe_context* context = nullptr;
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.device = LATHE_DEVICE_NONE;
  CHECK(lathe_context_create(&context, &options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "options.arch is not given"));
  options.arch = "sm_42";
  CHECK(lathe_context_create(&context, &options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "sm_42"));
  CHECK(contains(error(), "sm_90a"));
  options.arch = "sm_80";
  options.device = static_cast<lathe_device_kind>(8);
  CHECK(lathe_context_create(&context, &options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "options.device is 8"));
  options.device = LATHE_DEVICE_NONE;
  options.ordinal = -1;
  CHECK(lathe_context_create(&context, &options) == LATHE_INVALID_ARGUMENT);
  options.ordinal = 0, options.family = "hopper";
  CHECK(lathe_context_create(&context, &options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "options.family is"));
  CHECK(contains(error(), "allowed are auto, portable and sm90"));
  // A program that was made before the option came is not asked for it; half of it nobody has.
  options.size = offsetof(lathe_context_options, family) - 1;
  CHECK(lathe_context_create(&context, &options) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "options.size is"));
  CHECK(context == nullptr);
  ++options.size;
  REQUIRE(lathe_context_create(&context, &options) == LATHE_OK);
  lathe_context_destroy(context);
}

TEST_CASE("the family of kernels is an option of a context") {
  const auto family_of = [](const char* option) {
    const test::Folder folder;
    lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
    options.device = LATHE_DEVICE_NONE, options.arch = "sm_90a", options.family = option;
    options.cache_dir = folder.path.c_str();
    lathe_context* made = nullptr;
    REQUIRE(lathe_context_create(&made, &options) == LATHE_OK);
    const std::unique_ptr<lathe_context, void (*)(lathe_context*)> context(made,
                                                                           lathe_context_destroy);
    lathe_problem* problem = nullptr;
    REQUIRE(lathe_problem_create(&problem, "flash_attention") == LATHE_OK);
    const std::unique_ptr<lathe_problem, void (*)(lathe_problem*)> owner(problem,
                                                                         lathe_problem_destroy);
    const int64_t shape[] = {-1, -1, 8, 128};
    for (const char* name : {"q", "k", "v", "out"}) {
      REQUIRE(lathe_problem_tensor(problem, name, LATHE_BF16, 4, shape) == LATHE_OK);
    }
    const int64_t lse[] = {-1, 8, -1};
    REQUIRE(lathe_problem_tensor(problem, "lse", LATHE_F32, 3, lse) == LATHE_OK);
    lathe_plan* plan = nullptr;
    REQUIRE_MESSAGE(lathe_plan_create(&plan, made, problem) == LATHE_OK, error());
    lathe_kernel_info info = {};
    info.size = sizeof(info);
    REQUIRE(lathe_plan_kernel(plan, 0, &info) == LATHE_OK);
    const std::string found = std::string(info.family) + "; " + info.family_reason;
    lathe_plan_destroy(plan);
    return found;
  };
  CHECK(family_of("sm90") == "sm90; ");
  CHECK(family_of("portable") == "portable; not sm90: options.family is portable");
}

TEST_CASE("without a usable directory the cache is in memory, which is a warning") {
  const auto context = test::make_context(LATHE_DEVICE_NONE, "/proc/lathe-cannot-be-made");
  REQUIRE_MESSAGE(context, error());
  CHECK(std::string(info_of(context).cache_dir) == "");
  CHECK(std::string(info_of(context).cache_problem) != "");
  uint64_t compiled = 0;
  REQUIRE(lathe_warm(context.get(), forward(64).problem.get(), &compiled, nullptr) == LATHE_OK);
  CHECK(compiled == 1);
  uint64_t checked = 7;
  CHECK(lathe_cache_verify(context.get(), &checked, nullptr, nullptr) == LATHE_CACHE_IO);
  CHECK(checked == 7);
}

TEST_CASE("the doctor reports every item with four fields") {
  size_t needed = 0;
  REQUIRE(lathe_doctor(nullptr, 0, &needed) == LATHE_OK);
  std::string report(needed, '?');
  REQUIRE(lathe_doctor(report.data(), report.size(), &needed) == LATHE_OK);
  CHECK(report.size() == needed);
  CHECK(report.back() == '\0');
  report.pop_back();
  for (const char* item : {"cuda driver\t", "gpu\t", "simulator\t", "nvrtc\tfound\t", "nccl\t",
                           "nvdisasm\t", "cache directory\t"}) {
    CHECK(contains(report, item));
  }
  CHECK(contains(report, "ranks that share a gpu\t"));
  if (contains(report, "ranks that share a gpu\tfound\t")) {
    CHECK(contains(report, "NCCL_MULTI_RANK_GPU_ENABLE=1"));
  } else {
    CHECK(contains(report, "NCCL 2.30 or newer"));
  }
  if (contains(report, "cuda driver\tmissing")) {
    CHECK(contains(report, "cuda driver\tmissing\tlibcuda.so.1 was not found\tinstall"));
  }
  size_t tabs = 0, lines = 0;
  for (char c : report) tabs += c == '\t', lines += c == '\n';
  CHECK(tabs == 3 * lines);
  char small[5] = "????";
  REQUIRE(lathe_doctor(small, sizeof(small), nullptr) == LATHE_OK);
  CHECK(std::string(small) == report.substr(0, 4));
}

TEST_CASE("shards cut evenly or as told, and know their sequences") {
  lathe_shard* made = nullptr;
  REQUIRE(lathe_shard_create(&made, 3, 1, 100, nullptr) == LATHE_OK);
  test::Shard shard(made);
  int64_t begin = -1, end = -1;
  REQUIRE(lathe_shard_range(shard.get(), &begin, &end) == LATHE_OK);
  CHECK(begin == 33);
  CHECK(end == 66);
  const int64_t offsets[] = {0, 20, 50, 50, 100};
  lathe_shard_view view = {};
  view.size = sizeof(view);
  REQUIRE(lathe_shard_view_of(shard.get(), offsets, 5, &view) == LATHE_OK);
  REQUIRE(view.sequences == 2);
  CHECK(view.cu_seqlens[1] == 17);
  CHECK(view.cu_seqlens[2] == 33);
  CHECK(view.sequence_ids[0] == 1);
  CHECK(view.sequence_ids[1] == 3);
  CHECK(view.pre == 1);
  CHECK(view.post == 1);
  CHECK(view.pre_tokens == 13);
  const int64_t wrong[] = {0, 20, 99};
  CHECK(lathe_shard_view_of(shard.get(), wrong, 3, &view) == LATHE_INVALID_ARGUMENT);

  const int64_t bounds[] = {0, 5, 5, 6};
  CHECK(lathe_shard_create(&made, 3, 2, 7, bounds) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "bounds[3] is 6, but length is 7"));
  const int64_t falling[] = {0, 5, 4, 6};
  CHECK(lathe_shard_create(&made, 3, 2, 6, falling) == LATHE_INVALID_ARGUMENT);
  CHECK(lathe_shard_create(&made, 3, 3, 6, bounds) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "rank is 3"));
}

}  // namespace
