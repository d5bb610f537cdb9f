// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover recording: which lines are in the file, from how many threads and processes,
// and what a file that cannot be written costs. And the line in NOT_CACHED: warmed, it makes the
// same plan.
#include "api/cache/record.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>

#include "tests/cache/faults.h"
#include "tests/cache/support.h"
#include "tests/harness/support.h"

namespace {

using lathe::Recorder;
using lathe::test::Environment;
using lathe::test::Fault;
using lathe::test::FaultyFileSystem;
using lathe::test::Log;
using test::Builder;
using test::contains;
using test::error;

Builder conv(int64_t channels, int64_t width = 4) {
  Builder out("causal_conv1d");
  out.tensors({{"x", LATHE_BF16, {-1, -1, channels}},
               {"weight", LATHE_BF16, {channels, width}},
               {"y", LATHE_BF16, {-1, -1, channels}}});
  return out;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

lathe_status plan_status(const test::Context& context, const lathe_problem* problem) {
  lathe_plan* plan = nullptr;
  const lathe_status status = lathe_plan_create(&plan, context.get(), problem);
  lathe_plan_destroy(plan);
  return status;
}

TEST_CASE("a process records each problem once, whatever becomes of its plan") {
  const test::Folder folder;
  const std::string file = folder.path + "/problems.jsonl";
  const Environment record("LATHE_RECORD", file);
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  CHECK(plan_status(context, conv(16).problem.get()) == LATHE_OK);
  CHECK(plan_status(context, conv(16).problem.get()) == LATHE_OK);
  CHECK(plan_status(context, conv(16, 9).problem.get()) == LATHE_INVALID_ARGUMENT);
  uint64_t compiled = 0;
  CHECK(lathe_warm(context.get(), conv(24).problem.get(), &compiled, nullptr) == LATHE_OK);
  const Environment strict("LATHE_JIT", "off");
  const auto other = test::make_context(LATHE_DEVICE_NONE, folder.path);
  CHECK(plan_status(other, conv(16).problem.get()) == LATHE_OK);
  CHECK(plan_status(other, conv(16, 3).problem.get()) == LATHE_NOT_CACHED);

  const std::vector<std::string> lines = lines_of(file);
  REQUIRE(lines.size() == 2);
  CHECK(contains(lines[0], "[16,4]"));
  CHECK(contains(lines[1], "[16,3]"));
  struct stat about = {};
  REQUIRE(stat(file.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
}

TEST_CASE("the line in NOT_CACHED, warmed, makes the plan") {
  const test::Folder folder;
  const auto ask = [&](lathe_status expected) {
    const Environment strict("LATHE_JIT", "off");
    const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
    CHECK(plan_status(context, conv(16).problem.get()) == expected);
    return error();
  };
  // A similar problem is cached, so that there is something to differ from.
  const auto context = test::make_context(LATHE_DEVICE_NONE, folder.path);
  REQUIRE(lathe_warm(context.get(), conv(16, 3).problem.get(), nullptr, nullptr) == LATHE_OK);
  const std::string text = ask(LATHE_NOT_CACHED);
  CHECK(text.find("causal_conv1d is not cached in ") == 0);
  CHECK(contains(text, "\nlathe-key 1\n"));
  CHECK(contains(text, "the nearest entry differs first in"));
  const size_t begin = text.find("\n{") + 1, end = text.find('\n', begin);
  REQUIRE(begin != 0);
  const std::string line = text.substr(begin, end - begin);
  lathe_problem* problem = nullptr;
  REQUIRE_MESSAGE(lathe_problem_parse(&problem, line.data(), line.size()) == LATHE_OK, error());
  const test::Problem kept(problem);
  uint64_t compiled = 0;
  REQUIRE(lathe_warm(context.get(), problem, &compiled, nullptr) == LATHE_OK);
  CHECK(compiled == 1);
  ask(LATHE_OK);

  const Environment strict("LATHE_JIT", "off");
  const auto cold = test::make_context(LATHE_DEVICE_NONE, folder.path, "sm_80");
  CHECK(lathe_warm(cold.get(), problem, nullptr, nullptr) == LATHE_NOT_CACHED);
  CHECK(contains(error(), "\n" + line + "\n"));
}

TEST_CASE("threads and processes record into one file, in whole lines") {
  const test::Folder folder;
  const std::string file = folder.path + "/problems.jsonl";
  constexpr int kProcesses = 4, kThreads = 4, kProblems = 50;
  const auto record_all = [&] {
    Recorder recorder(file);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 1; i <= kProblems; ++i) recorder.note(*conv(i).problem);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      record_all();
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  std::vector<std::string> lines = lines_of(file);
  CHECK(lines.size() == kProcesses * kProblems);
  std::sort(lines.begin(), lines.end());
  for (size_t i = 0; i < lines.size(); ++i) {
    CHECK(lines[i] == lines[i - i % kProcesses]);
    lathe_problem* problem = nullptr;
    REQUIRE(lathe_problem_parse(&problem, lines[i].data(), lines[i].size()) == LATHE_OK);
    lathe_problem_destroy(problem);
  }
}

// Returns how many lines there are, each of which is a problem's.
size_t sound_lines(const std::string& path) {
  const std::vector<std::string> lines = lines_of(path);
  for (const std::string& line : lines) {
    CAPTURE(line);
    lathe_problem* problem = nullptr;
    CHECK(lathe_problem_parse(&problem, line.data(), line.size()) == LATHE_OK);
    lathe_problem_destroy(problem);
  }
  return lines.size();
}

TEST_CASE("a line of which a full disk takes only a part is taken back") {
  const test::Folder folder;
  const std::string file = folder.path + "/problems.jsonl";
  Recorder(file).note(*conv(8).problem);
  lathe::FileSystem full = lathe::real_fs();
  full.write = [](int fd, const void* from, size_t bytes) -> ssize_t {
    return lathe::real_fs().write(fd, from, bytes / 2);
  };
  for (const int64_t channels : {16, 24}) {
    Log log;
    Recorder(file, full).note(*conv(channels).problem);
    CHECK(log.warnings().size() == 1);
    CHECK(sound_lines(file) == 1);
  }
  Recorder(file).note(*conv(16).problem);
  CHECK(sound_lines(file) == 2);
}

TEST_CASE("a line behind a text without a newline begins one") {
  const test::Folder folder;
  const std::string file = folder.path + "/problems.jsonl";
  std::ofstream(file) << R"({"op":"causal_conv1d","ten)";
  Recorder(file).note(*conv(8).problem);
  const std::vector<std::string> lines = lines_of(file);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == R"({"op":"causal_conv1d","ten)");
  CHECK(lines[1].front() == '{');
  CHECK(lines[1].back() == '}');
}

TEST_CASE("a process that waits with the file locked keeps nobody waiting") {
  const test::Folder folder;
  const std::string file = folder.path + "/problems.jsonl";
  Recorder(file).note(*conv(8).problem);
  const int held = open(file.c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(held >= 0);
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  REQUIRE(fcntl(held, F_OFD_SETLK, &whole) == 0);
  Recorder(file).note(*conv(16).problem);
  CHECK(sound_lines(file) == 2);
  close(held);
}

TEST_CASE("a file that cannot be written is one warning") {
  const test::Folder folder;
  const std::string link = folder.path + "/link", pipe = folder.path + "/pipe";
  REQUIRE(symlink((folder.path + "/target").c_str(), link.c_str()) == 0);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {folder.path, folder.path + "/none/file", link, pipe}) {
    CAPTURE(path);
    Log log;
    Recorder recorder(path);
    recorder.note(*conv(8).problem);
    recorder.note(*conv(16).problem);
    REQUIRE(log.warnings().size() == 1);
    CHECK(log.mentions(path));
  }
  CHECK(access((folder.path + "/target").c_str(), F_OK) != 0);
}

TEST_CASE("every file call may fail") {
  for (const int wrong : {EIO, ENOSPC, EACCES, ESTALE, EINTR}) {
    for (int at = 1;; ++at) {
      CAPTURE(wrong);
      CAPTURE(at);
      const test::Folder folder;
      const std::string file = folder.path + "/problems.jsonl";
      Log log;
      Fault fault;
      fault.at = at, fault.error = wrong;
      const FaultyFileSystem faulty(fault);
      Recorder recorder(file, faulty.table());
      recorder.note(*conv(8).problem);
      // A lock that fails costs nothing: without a warning the line is there.
      const bool told = !log.warnings().empty();
      CHECK(log.warnings().size() <= 1);
      if (wrong == EINTR || !faulty.reached()) CHECK_FALSE(told);
      if (!told) CHECK(lines_of(file).size() == 1);
      // Whole lines or none.
      for (const std::string& line : lines_of(file)) CHECK(line.back() == '}');
      if (!faulty.reached()) break;
      REQUIRE(at < 20);
    }
  }
}

}  // namespace
