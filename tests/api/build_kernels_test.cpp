// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kernels built side by side: each once in the process, whoever asks; the first
// failure in the order of the list; and a process that is killed while it compiles leaves nothing.
#include "api/cache/build_kernels.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "api/plan.h"
#include "tests/cache/support.h"
#include "tests/harness/support.h"

namespace {

using lathe::KernelSpec;
using test::Builder;
using test::contains;
using test::error;

Builder conv(int64_t width, const char* activation = "none", bool backward = false) {
  Builder out("causal_conv1d");
  out.tensors({{"x", LATHE_BF16, {-1, -1, 64}},
               {"weight", LATHE_BF16, {64, width}},
               {"y", LATHE_BF16, {-1, -1, 64}}});
  if (backward) {
    out.tensors({{"dy", LATHE_BF16, {-1, -1, 64}},
                 {"dx", LATHE_BF16, {-1, -1, 64}},
                 {"dweight", LATHE_BF16, {64, width}}});
  }
  out.set("activation", activation);
  return out;
}

std::vector<KernelSpec> specs_of(const test::Context& context, const Builder& builder) {
  const auto resolved = lathe::declared_by(*builder.problem);
  REQUIRE_MESSAGE(resolved.ok(), resolved.status().text());
  const auto executor = lathe::make_executor(*resolved, context->facts);
  REQUIRE_MESSAGE(executor.ok(), executor.status().text());
  return (*executor)->specs();
}

TEST_CASE("threads with overlapping problems compile each kernel once") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  constexpr int kThreads = 8;
  // Widths 2 to 6, of which each thread has three.
  std::vector<std::vector<KernelSpec>> lists(kThreads);
  std::vector<KernelSpec> all;
  for (int width = 2; width <= 6; ++width) {
    for (const KernelSpec& spec : specs_of(context, conv(width))) all.push_back(spec);
  }
  for (int t = 0; t < kThreads; ++t) {
    for (size_t i = 0; i < 3; ++i)
      lists[t].push_back(all[(static_cast<size_t>(t) + i) % all.size()]);
  }
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto built = lathe::build_kernels(*context, lists[t], lathe::Load::no, 4);
      bool right = built.ok() && built->size() == lists[t].size();
      for (size_t i = 0; right && i < lists[t].size(); ++i) {
        right = (*built)[i].built->spec().text() == lists[t][i].text();
      }
      good += right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == kThreads);
  CHECK(context->registry->stat().compiled == all.size());
  CHECK(context->compiled == all.size());
  CHECK(context->hits == 3 * kThreads - all.size());
}

TEST_CASE("a kernel that is there makes nobody busy, one that is missing does once") {
  const test::Folder folder;
  for (const int expected : {1, 0}) {
    const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
    const KernelSpec spec = specs_of(context, conv(2)).front();
    for (const int more : {expected, 0}) {
      int busy = 0;
      REQUIRE(context->registry->build(spec, [&] { ++busy; }).ok());
      CHECK(busy == more);
    }
  }
  const lathe::test::Environment strict("LATHE_JIT", "off");
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  const auto built =
      context->registry->build(specs_of(context, conv(3)).front(), [] { CHECK(false); });
  CHECK(built.status().code() == lathe::Code::not_cached);
}

TEST_CASE("of several failures the first in the list is told, and kernels keep their order") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  std::vector<KernelSpec> specs = specs_of(context, conv(2));
  KernelSpec broken = specs.front();
  for (const char* name : {"first_that_is_missing", "second_that_is_missing"}) {
    broken.kernel = name;
    specs.push_back(broken);
  }
  for (int i = 0; i < 3; ++i) {
    const auto built = lathe::build_kernels(*context, specs, lathe::Load::no, 4);
    CHECK(built.status().code() == lathe::Code::compile_failed);
    CHECK(contains(built.status().text(), "first_that_is_missing"));
  }
  // The same one twice: the second finds it in memory, whoever was faster.
  const std::vector<KernelSpec> twice = {specs_of(context, conv(4)).front(),
                                         specs_of(context, conv(5)).front(),
                                         specs_of(context, conv(4)).front()};
  const auto built = lathe::build_kernels(*context, twice, lathe::Load::no, 4);
  REQUIRE(built.ok());
  CHECK((*built)[0].built->origin == lathe::Origin::compiler);
  CHECK((*built)[1].built->origin == lathe::Origin::compiler);
  CHECK((*built)[2].built->origin == lathe::Origin::memory);
}

lathe_warming_item_info item_of(const lathe_warming* warming, size_t index) {
  lathe_warming_item_info item = {};
  item.size = sizeof item;
  REQUIRE(lathe_warming_item(warming, index, &item) == LATHE_OK);
  return item;
}

TEST_CASE("a warming builds what several problems need once, and goes on after a failure") {
  const test::Folder folder;
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  const auto older = test::make_context(LATHE_DEVICE_NONE, folder.path, "sm_80");
  lathe_warming* warming = nullptr;
  REQUIRE(lathe_warming_create(&warming) == LATHE_OK);
  CHECK(lathe_warming_add(warming, context.get(), conv(9).problem.get()) == LATHE_INVALID_ARGUMENT);
  REQUIRE(lathe_warming_add(warming, context.get(), conv(4).problem.get()) == LATHE_OK);
  REQUIRE(lathe_warming_add(warming, context.get(), conv(4, "none", true).problem.get()) ==
          LATHE_OK);
  REQUIRE(lathe_warming_add(warming, older.get(), conv(4).problem.get()) == LATHE_OK);
  const size_t count = lathe_warming_kernel_count(warming);
  struct Seen {
    size_t calls = 0, done = 0, compiled = 0, stop_at = 1;
  } seen;
  const auto progress = [](void* user, size_t done, size_t total, size_t compiled) {
    auto* to = static_cast<Seen*>(user);
    CHECK(done <= total);
    CHECK(done == to->calls++);
    to->done = done, to->compiled = compiled;
    return static_cast<int>(done == to->stop_at);
  };
  CHECK(lathe_warming_run(warming, 1, progress, &seen) == LATHE_INVALID_ARGUMENT);
  CHECK(seen.done == 1);
  CHECK(item_of(warming, 1).compiled == 1);
  CHECK(item_of(warming, 2).left > 0);
  CHECK(item_of(warming, 3).left == 1);

  seen = {0, 0, 0, 99};
  CHECK(lathe_warming_run(warming, 2, progress, &seen) == LATHE_INVALID_ARGUMENT);
  CHECK(contains(error(), "W = 9"));
  CHECK(seen.done == count - 1);
  CHECK(seen.compiled == count - 1);
  CHECK(item_of(warming, 0).status == LATHE_INVALID_ARGUMENT);
  CHECK(contains(item_of(warming, 0).error, "W = 9"));
  CHECK(item_of(warming, 0).kernels == 0);
  CHECK(item_of(warming, 3).compiled == 1);
  CHECK(std::string(item_of(warming, 3).arch) == "sm_80");
  CHECK(item_of(warming, 2).kernels == item_of(warming, 2).compiled + item_of(warming, 2).shared);
  CHECK(item_of(warming, 2).status == LATHE_OK);
  for (size_t i = 0; i < count; ++i) {
    lathe_warming_kernel_info kernel = {};
    kernel.size = sizeof kernel;
    REQUIRE(lathe_warming_kernel(warming, i, &kernel) == LATHE_OK);
    CHECK(std::string(kernel.from) == "compiler");
    CHECK(std::string(kernel.key).size() == 32);
  }
  lathe_warming_item_info item = {};
  item.size = sizeof item;
  CHECK(lathe_warming_item(warming, 4, &item) == LATHE_INVALID_ARGUMENT);
  lathe_warming_destroy(warming);

  // A second warming finds everything; the same problem twice is shared.
  REQUIRE(lathe_warming_create(&warming) == LATHE_OK);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(lathe_warming_add(warming, older.get(), conv(4).problem.get()) == LATHE_OK);
  }
  CHECK(lathe_warming_run(warming, 0, nullptr, nullptr) == LATHE_OK);
  CHECK(item_of(warming, 0).hits == 1);
  CHECK(item_of(warming, 1).shared == 1);
  lathe_warming_destroy(warming);
}

bool somebody_holds_a_lock(const std::string& cache) {
  const int file = open((cache + "/v1/lock").c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  struct flock what = {};
  what.l_type = F_WRLCK;
  const bool held = fcntl(file, F_OFD_GETLK, &what) == 0 && what.l_type != F_UNLCK;
  close(file);
  return held;
}

TEST_CASE("a process killed while it compiles leaves nothing") {
  const test::Folder folder;
  const Builder slow = [] {
    Builder out("flash_attention");
    out.tensors({{"q", LATHE_BF16, {-1, -1, 8, 128}},
                 {"k", LATHE_BF16, {-1, -1, 8, 128}},
                 {"v", LATHE_BF16, {-1, -1, 8, 128}},
                 {"out", LATHE_BF16, {-1, -1, 8, 128}},
                 {"lse", LATHE_F32, {-1, 8, -1}}});
    return out;
  }();
  const pid_t child = fork();
  if (child == 0) {
    setenv("LATHE_TEST_NVRTC_MEMO", "", 1);  // so that it takes its time
    const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
    lathe_warm(context.get(), slow.problem.get(), nullptr, nullptr);
    _exit(0);
  }
  bool compiling = false;
  for (int i = 0; i < 60000 && !compiling; ++i) {
    compiling = somebody_holds_a_lock(folder.path);
    if (!compiling) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  REQUIRE(compiling);
  kill(child, SIGKILL);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  // A compile process that was just being started shares the lock's descriptor up to its execve().
  for (int i = 0; i < 5000 && somebody_holds_a_lock(folder.path); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK_FALSE(somebody_holds_a_lock(folder.path));
  // Only the note of which compiler the process had opened may be there.
  size_t files = 0;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder.path)) {
    files += each.is_regular_file() && each.file_size() > 0 && each.path().filename() != "nvrtc";
  }
  CHECK(files == 0);
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  uint64_t compiled = 0, hits = 0;
  REQUIRE(lathe_warm(context.get(), slow.problem.get(), &compiled, &hits) == LATHE_OK);
  CHECK(compiled > 0);
  CHECK(hits == 0);
}

}  // namespace
