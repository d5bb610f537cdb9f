// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover a start that knows the compiler without opening it, and everything that must
// make it open it. The compilers are fakes that differ in their build ids; what opens one is a
// process of its own, as a compile process that waits would answer from then on.
#include "cache/compiler_memo.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <thread>

#include "cache/registry.h"
#include "codegen/base/text.h"
#include "ops/conv/kernels.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

namespace {

const std::string kFakes = LATHE_FAKE_NVRTC_DIR;
const std::string kA = "nvrtc 13.7 aaaaaaaaaaaaaaaa", kB = "nvrtc 13.7 bbbbbbbbbbbbbbbb";

KernelSpec conv_spec(int width) {
  ConvProblem problem;
  problem.width = width;
  problem.forward = true;
  return *conv_kernels(problem, *facts_of_arch("sm_90a"), false)->forward;
}

// A Start holds what a process that wants one kernel saw: its origin, whether the compiler is open
// now, and which compiler made the kernel.
struct Start {
  std::string origin, opened, identity;
  bool operator==(const Start&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Start& start) {
  return out << start.origin << ", " << start.opened << ", " << start.identity;
}
Start compiled(const std::string& by) { return {"compiler", "opened", by}; }
Start opened(const std::string& by) { return {"disk", "opened", by}; }
Start remembered(const std::string& by) { return {"disk", "not opened", by}; }

void start_here(const std::string& cache, int width, const std::string& report) {
  Registry registry(Store::open(cache), nullptr, "sm_90a");
  const auto built = registry.build(conv_spec(width));
  const std::string what = built.ok() ? word((*built)->origin) : built.status().text();
  const auto identity = built.ok() ? *(*built)->entry->metadata.find("nvrtc") : "";
  write_file(report, text(what, "\n", compile_processes_started() > 0 ? "opened" : "not opened",
                          "\n", identity));
}

Start read_start(const std::string& report) {
  std::ifstream in(report);
  Start start;
  std::getline(in, start.origin);
  std::getline(in, start.opened);
  std::getline(in, start.identity);
  return start;
}

// Starts a new process with the cache, and LATHE_NVRTC as it is.
Start start(const TemporaryDirectory& place, int width = 4) {
  const std::string report = place / "report";
  wait_for(in_child([&] {
    start_here(place / "cache", width, report);
    return 0;
  }));
  return read_start(report);
}

void install(const std::string& which, const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::copy_file(kFakes + "/" + which, path + ".new");
  std::filesystem::rename(path + ".new", path);
  // The memo does not note a file that has just changed.
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
}

std::optional<std::string> recalled(const TemporaryDirectory& place) {
  const auto store = Store::open(place / "cache");
  return CompilerMemo(*store, 0).recall();
}

// A cache that remembers compiler A at place/a, with one kernel.
struct Warm {
  TemporaryDirectory place;
  std::string library = place / "a/libnvrtc.so.13", memo = place / "cache/v1/nvrtc";
  Environment named{"LATHE_NVRTC", library};
  Warm() {
    install("fake_a.so", library);
    CHECK(start(place) == compiled(kA));
    REQUIRE(recalled(place) == kA);
  }
};

}  // namespace

TEST_CASE("the second process knows the compiler and opens nothing") {
  const Warm warm;
  CHECK(start(warm.place) == remembered(kA));
  // A kernel that is not there needs it after all.
  CHECK(start(warm.place, 3) == compiled(kA));
  CHECK(start(warm.place, 3) == remembered(kA));
}

TEST_CASE("another file in the compiler's place is opened and noted") {
  const Warm warm;
  install("fake_b.so", warm.library);
  CHECK(recalled(warm.place) == std::nullopt);
  CHECK(start(warm.place) == compiled(kB));
  CHECK(start(warm.place) == remembered(kB));
  // The same bytes under another inode are another file as well.
  install("fake_b.so", warm.library);
  CHECK(start(warm.place) == opened(kB));
  CHECK(start(warm.place) == remembered(kB));
  // So is the same inode with another time.
  std::filesystem::last_write_time(warm.library, std::filesystem::file_time_type::clock::now());
  std::this_thread::sleep_for(std::chrono::milliseconds(80));
  CHECK(start(warm.place) == opened(kB));
  CHECK(start(warm.place) == remembered(kB));
  std::filesystem::remove(warm.library);
  CHECK(recalled(warm.place) == std::nullopt);
}

TEST_CASE("another LATHE_NVRTC is another question, and each has its answer") {
  const Warm warm;
  const std::string other = warm.place / "b/libnvrtc.so.13";
  install("fake_b.so", other);
  {
    const Environment named("LATHE_NVRTC", other);
    CHECK(recalled(warm.place) == std::nullopt);
    CHECK(start(warm.place) == compiled(kB));
    CHECK(start(warm.place) == remembered(kB));
  }
  CHECK(start(warm.place) == remembered(kA));
}

TEST_CASE("a compiler that the driver is too old for is not remembered to it") {
  const Warm warm;
  const auto store = Store::open(warm.place / "cache");
  CHECK(CompilerMemo(*store, 13000).recall() == kA);
  CHECK(CompilerMemo(*store, 12090).recall() == std::nullopt);
}

TEST_CASE("a file that has only just changed is not noted") {
  const Warm warm;
  std::filesystem::last_write_time(
      warm.library, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  CHECK(start(warm.place) == opened(kA));
  CHECK(recalled(warm.place) == std::nullopt);
}

TEST_CASE("a damaged note is no note") {
  const Warm warm;
  const std::string good = read_file(warm.memo);
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {1, 0x80}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      write_file(warm.memo, bad);
      CAPTURE(at);
      REQUIRE(recalled(warm.place) == std::nullopt);
    }
    write_file(warm.memo, good.substr(0, at));
    REQUIRE(recalled(warm.place) == std::nullopt);
  }
  write_file(warm.memo, std::string(100000, '\n'));
  CHECK(start(warm.place) == opened(kA));
  CHECK(read_file(warm.memo) == good);
  std::filesystem::remove(warm.memo);
  std::filesystem::create_symlink(kFakes, warm.memo);
  CHECK(recalled(warm.place) == std::nullopt);
}

TEST_CASE("where the note is wrong, the compiler that is opened wins") {
  const Warm warm;
  std::string lie = read_file(warm.memo);
  lie.replace(lie.find(kA), kA.size(), kB);
  const size_t end = lie.find("check=");
  write_file(warm.memo, lie.substr(0, end) + "check=" + digest(lie.substr(0, end)).hex() + "\n");
  REQUIRE(recalled(warm.place) == kB);
  // Nothing was published under the wrong name, so that nothing is found under it.
  CHECK(start(warm.place) == opened(kA));
  CHECK(recalled(warm.place) == kA);
  CHECK(start(warm.place, 5) == compiled(kA));
}

TEST_CASE("a cache that takes no note works as before") {
  const TemporaryDirectory place;
  const Environment named("LATHE_NVRTC", place / "a/libnvrtc.so.13");
  install("fake_a.so", place / "a/libnvrtc.so.13");
  Log log;
  write_file(place / "cache", "a file in place of the directory");
  CHECK(start(place) == compiled(kA));
  CHECK(recalled(place) == std::nullopt);
  std::filesystem::remove(place / "cache");
  // A directory where the note should be.
  std::filesystem::create_directories(place / "cache/v1/nvrtc");
  std::filesystem::permissions(place / "cache", std::filesystem::perms::owner_all);
  std::filesystem::permissions(place / "cache/v1", std::filesystem::perms::owner_all);
  CHECK(start(place) == compiled(kA));
  CHECK(start(place) == opened(kA));
}

// Run by the case below, in a process with LD_LIBRARY_PATH of its own.
TEST_CASE("inner" * doctest::skip()) {
  const char* place = std::getenv("LATHE_MEMO_PLACE");
  REQUIRE(place != nullptr);
  start_here(std::string(place) + "/cache", 4, std::string(place) + "/report");
}

TEST_CASE("a library that turns up earlier in the loader's folders is found") {
  const TemporaryDirectory place;
  const Environment unnamed("LATHE_NVRTC", std::nullopt);
  const Environment path("LD_LIBRARY_PATH", place / "first" + ":" + (place / "second"));
  const Environment where("LATHE_MEMO_PLACE", place.path());
  const auto start_anew = [&] {
    const pid_t child = fork();
    if (child == 0) {
      execl("/proc/self/exe", "compiler_memo_test", "--test-case=inner", "--no-skip", "--minimal",
            static_cast<char*>(nullptr));
      _exit(127);
    }
    CHECK(wait_for(child) == 0);
    return read_start(place / "report");
  };
  std::filesystem::create_directories(place / "first");
  install("fake_a.so", place / "second/libnvrtc.so.13");
  CHECK(start_anew() == compiled(kA));
  CHECK(start_anew() == remembered(kA));
  // Files beside it do not matter.
  write_file(place / "first/other", "x");
  CHECK(start_anew() == remembered(kA));
  install("fake_b.so", place / "first/libnvrtc.so.13");
  CHECK(start_anew() == compiled(kB));
  CHECK(start_anew() == remembered(kB));
  std::filesystem::remove(place / "first/libnvrtc.so.13");
  CHECK(start_anew() == opened(kA));
}
