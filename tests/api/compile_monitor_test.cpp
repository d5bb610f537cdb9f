// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover who is told of kernels that were compiled: once each, with the call; and
// nobody of kernels that were found.
#include <doctest/doctest.h>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/api/manifest_text.h"
#include "tests/cache/support.h"

namespace {

using lathe::test::Environment;
using manifest::text_of;
using test::Builder;
using test::contains;
using test::error;

struct Told {
  std::string kernel, arch, key, spec, call, line;
  double milliseconds;
};

// Keeps what it is told while it lives.
struct Listener {
  std::mutex mutex;
  std::vector<Told> told;
  Listener() { lathe_on_compile(tell, this); }
  ~Listener() { lathe_on_compile(nullptr, nullptr); }
  static void tell(void* self, const lathe_compile_info* info) {
    auto* listener = static_cast<Listener*>(self);
    const std::lock_guard<std::mutex> lock(listener->mutex);
    CHECK(info->size == sizeof(lathe_compile_info));
    listener->told.push_back({info->kernel, info->arch, info->key, info->spec, info->call,
                              info->line, info->milliseconds});
  }
};

// A convolution whose channels no other test has, so that nothing is in memory.
Builder conv(int64_t channels, int64_t tokens) {
  Builder out("causal_conv1d");
  out.set("activation", "silu");
  out.tensors({{"x", LATHE_BF16, {3, tokens, channels}},
               {"weight", LATHE_BF16, {channels, 4}},
               {"y", LATHE_BF16, {3, tokens, channels}}});
  REQUIRE(lathe_problem_open(out.problem.get()) == LATHE_OK);
  return out;
}

std::string key_of_plan(const test::Context& context, const lathe_problem* problem) {
  lathe_plan* made = nullptr;
  const bool good = lathe_plan_create(&made, context.get(), problem) == LATHE_OK;
  REQUIRE_MESSAGE(good, error());
  const test::Plan plan(made);
  lathe_kernel_info info{};
  info.size = sizeof info;
  REQUIRE(lathe_plan_kernel(plan.get(), 0, &info) == LATHE_OK);
  return info.key;
}

TEST_CASE("a compile is told once, with the call that needed it") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  const Listener listener;
  const Builder asked = conv(48, 77);
  const std::string key = key_of_plan(context, asked.problem.get());
  key_of_plan(context, asked.problem.get());  // from memory
  key_of_plan(test::make_context(LATHE_DEVICE_NONE, folder.path), conv(48, 5).problem.get());
  REQUIRE(listener.told.size() == 1);
  const Told& told = listener.told.front();
  CHECK(told.kernel == "causal_conv1d");
  CHECK(told.arch == "sm_90a");
  CHECK(told.key == key);
  CHECK(contains(told.spec, "width=4"));
  // The extents are those of the call, although the problem is open.
  CHECK(told.call ==
        "causal_conv1d(x bf16[3, 77, 48], weight bf16[48, 4], y bf16[3, 77, 48], activation=silu)");
  CHECK(told.line == text_of(asked.problem.get()));
  CHECK(told.milliseconds >= 0);
  lathe_problem* again = nullptr;
  REQUIRE(lathe_problem_parse(&again, told.line.data(), told.line.size()) == LATHE_OK);
  lathe_problem_destroy(again);
}

TEST_CASE("what is warmed ahead has no call") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  const Listener listener;
  lathe_warming* warming = nullptr;
  REQUIRE(lathe_warming_create(&warming) == LATHE_OK);
  CHECK(lathe_warming_add(warming, context.get(), conv(56, 3).problem.get()) == LATHE_OK);
  CHECK(lathe_warming_run(warming, 1, nullptr, nullptr) == LATHE_OK);
  lathe_warming_destroy(warming);
  REQUIRE(listener.told.size() == 1);
  CHECK((listener.told[0].call.empty() && listener.told[0].line.empty()));
  CHECK(listener.told[0].kernel == "causal_conv1d");
}

TEST_CASE("the file of LATHE_COMPILE_LOG has a line for each compile") {
  const test::Folder folder;
  const std::string file = folder.path + "/compiles.log";
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path + "/cache");
  std::string key;
  {
    const Environment log("LATHE_COMPILE_LOG", file);
    key = key_of_plan(context, conv(64, 9).problem.get());
    key_of_plan(context, conv(64, 11).problem.get());
  }
  key_of_plan(context, conv(72, 9).problem.get());
  std::ifstream from(file);
  std::string line, more;
  REQUIRE(std::getline(from, line));
  CHECK(line.rfind("compiled causal_conv1d for sm_90a in ", 0) == 0);
  CHECK(contains(line, " ms: key " + key + ", call causal_conv1d(x bf16[3, 9, 64], "));
  CHECK_FALSE(std::getline(from, more));
}

TEST_CASE("a log that cannot be written costs a warning and no plan") {
  const test::Folder folder;
  lathe::test::Log log;
  const Environment where("LATHE_COMPILE_LOG", folder.path);
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path + "/cache");
  key_of_plan(context, conv(80, 9).problem.get());
  CHECK(log.mentions("LATHE_COMPILE_LOG is '" + folder.path + "'"));
}

TEST_CASE("of threads that need one kernel, one tells of it") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  const Listener listener;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&context, t] { key_of_plan(context, conv(88, 9 + t).problem.get()); });
  }
  for (std::thread& each : threads) each.join();
  CHECK(listener.told.size() == 1);
}

TEST_CASE("a listener may make the same plan: it does not wait for itself") {
  const test::Folder folder;
  struct Inside {
    test::Context context;
    int calls = 0;
  } inside{test::make_context(LATHE_DEVICE_NONE, folder.path)};
  lathe_on_compile(
      [](void* user, const lathe_compile_info* info) {
        auto* self = static_cast<Inside*>(user);
        ++self->calls;
        key_of_plan(self->context, manifest::parse(info->line).get());
      },
      &inside);
  key_of_plan(inside.context, conv(104, 9).problem.get());
  lathe_on_compile(nullptr, nullptr);
  CHECK(inside.calls == 1);
}

}  // namespace
