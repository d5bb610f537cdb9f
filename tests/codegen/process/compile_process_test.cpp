// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the compile process, seen from the program that has it: the compilers are fakes
// that hang, grow, crash and leave as the unit says.
#include "codegen/process/compile_process.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>

#include <thread>

#include "codegen/compiler_library.h"
#include "codegen/nvrtc.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

namespace {

const std::string kFakes = LATHE_FAKE_NVRTC_DIR;
constexpr const char* kGood = "// kernel\n";

std::shared_ptr<const Compiler> open_fake(const std::string& name = "fake_a.so") {
  const auto opened = Compiler::open(kFakes + "/" + name);
  REQUIRE_MESSAGE(opened.ok(), opened.status().text());
  return *opened;
}

// Returns the PTX, or why there is none.
std::string compile(const Compiler& compiler, const std::string& unit,
                    const std::vector<Mod>& mods = {}) {
  const auto compiled = compiler.compile(unit, "sm_80", mods);
  return compiled.ok() ? compiled->ptx : compiled.status().text();
}

Mod text_of_user(const std::string& text) { return {"score_mod", "bias.cuh", text}; }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr const char* kPtx = "compiled by a fake";

volatile sig_atomic_t children_ended = 0, interrupts = 0;

}  // namespace

TEST_CASE("compiles share one process, which later contexts use as well") {
  const auto first = open_fake();
  CHECK(first->identity() == "nvrtc 13.7 aaaaaaaaaaaaaaaa");
  CHECK(first->path() == kFakes + "/fake_a.so");
  const int64_t started = compile_processes_started();
  for (int i = 0; i < 5; ++i) CHECK(compile(*first, kGood) == kPtx);
  const auto second = open_fake();
  CHECK(compile(*second, kGood) == kPtx);
  CHECK(compile_processes_started() == started);
}

TEST_CASE("compiles at the same time have a process each") {
  const auto compiler = open_fake();
  const int64_t before = compile_processes_started();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { good += compile(*compiler, "fake: pause") == kPtx; });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(good == 4);
  CHECK(compile_processes_started() - before <= 4);
}

TEST_CASE("a text that would bring its process down is refused with what it did") {
  const Environment seconds("LATHE_COMPILE_SECONDS", "1");
  const Environment memory("LATHE_COMPILE_MAX_BYTES", "1000000000");
  const struct {
    std::string word, expected;
  } kCases[] = {
      {"loop", "took more than the 1 s of processor time that LATHE_COMPILE_SECONDS allows"},
      {"memory",
       "wanted more memory than the 1000000000 bytes of address space that "
       "LATHE_COMPILE_MAX_BYTES allows"},
      {"recursion", "ended by signal 11"},
      {"exit", "called exit() after printing \"the fake is tired\""},
      {"kill", "ended without a word"},
      {"sleep", "was not done after 10 s, 10 times the processor time that LATHE_COMPILE_SECONDS"},
  };
  const auto compiler = open_fake();
  for (const auto& each : kCases) {
    CAPTURE(each.word);
    const std::string line = "// fake: " + each.word + "\n";
    const auto compiled = compiler->compile(kGood, "sm_80", {text_of_user(line)});
    CHECK(compiled.status().code() == Code::compile_failed);
    const std::string why = compiled.status().text();
    CHECK_MESSAGE(contains(why, "option score_mod: bias.cuh: the compiler "), why);
    CHECK_MESSAGE(contains(why, each.expected), why);
    // The next one is none the worse.
    CHECK(compile(*compiler, kGood) == kPtx);
  }
}

TEST_CASE("lathe's own units have no time limit, and their failure names the kernel") {
  const Environment seconds("LATHE_COMPILE_SECONDS", "1");
  const auto compiler = open_fake();
  CHECK(contains(compile(*compiler, "// conv x=bf16\n// fake: kill\n"),
                 "// conv x=bf16: the compiler ended without a word"));
}

TEST_CASE("without a limit a process may take what there is") {
  const Environment memory("LATHE_COMPILE_MAX_BYTES", "0");
  const auto compiler = open_fake();
  CHECK(compile(*compiler, "// fake: memory\n") == kPtx);
}

TEST_CASE("a process that left while nobody asked is replaced") {
  const auto compiler = open_fake();
  const size_t descriptors = open_descriptors();
  for (int i = 0; i < 3; ++i) {
    CHECK(compile(*compiler, "// fake: leave\n") == kPtx);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(compile(*compiler, kGood) == kPtx);
  }
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("the program has no child that it did not make, and hears of none") {
  struct sigaction own = {}, before;
  own.sa_handler = [](int) { children_ended = 1; };
  sigaction(SIGCHLD, &own, &before);
  children_ended = 0;
  const Environment memory("LATHE_COMPILE_MAX_BYTES", "3000000000");  // a process of its own
  const auto compiler = open_fake();
  CHECK(compile(*compiler, kGood) == kPtx);
  CHECK(waitpid(-1, nullptr, WNOHANG | __WALL) == -1);
  CHECK(errno == ECHILD);
  CHECK(contains(compile(*compiler, "// fake: recursion\n"), "signal 11"));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(waitpid(-1, nullptr, WNOHANG | __WALL) == -1);
  CHECK(errno == ECHILD);
  CHECK(children_ended == 0);
  sigaction(SIGCHLD, &before, nullptr);
}

TEST_CASE("the process inherits no signals, descriptors, preloads or terminal") {
  const Environment memory("LATHE_COMPILE_MAX_BYTES", "3100000000");  // a process of its own
  const Environment preload("LD_PRELOAD", "/nonexistent/library.so");
  const auto ignored = signal(SIGUSR1, SIG_IGN);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  const int file = dup(0);
  const auto compiler = open_fake();
  CHECK(compile(*compiler, "// fake: describe\n") ==
        "leads=1 blocked=0 ignored=0 descriptors=3 preload=none flags=none");
  close(file);
  sigset_t after;
  pthread_sigmask(SIG_SETMASK, &before, &after);
  CHECK(sigismember(&after, SIGUSR2) == 1);
  CHECK(sigismember(&after, SIGUSR1) == 0);
  signal(SIGUSR1, ignored);
}

TEST_CASE("a forked child leaves its parent's process alone and has its own") {
  const auto compiler = open_fake();
  CHECK(compile(*compiler, kGood) == kPtx);
  const pid_t child = in_child([&] {
    for (int i = 0; i < 20; ++i) {
      if (compile(*compiler, kGood) != kPtx) return 1;
    }
    return compile_processes_started() == 1 ? 0 : 2;
  });
  for (int i = 0; i < 20; ++i) CHECK(compile(*compiler, kGood) == kPtx);
  CHECK(wait_for(child) == 0);
}

TEST_CASE("SIGINT stays the program's, whichever thread takes it") {
  const auto before = signal(SIGINT, [](int) { interrupts = 1; });
  interrupts = 0;
  const auto compiler = open_fake();
  // This thread takes signals; the others do not.
  sigset_t all, mask;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  std::string ptx;
  std::thread compiling([&] { ptx = compile(*compiler, "// fake: handler\n"); });
  std::thread key([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    kill(getpid(), SIGINT);
  });
  pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  compiling.join();
  key.join();
  CHECK(interrupts == 1);
  CHECK(ptx == kPtx);
  signal(SIGINT, before);
}

TEST_CASE("LATHE_COMPILE_PROCESS=off compiles in the program") {
  Log log;
  for (const char* value : {"off", "on", "maybe"}) {
    CAPTURE(value);
    const Environment process("LATHE_COMPILE_PROCESS", value);
    const pid_t child = in_child([&] {
      const auto opened = Compiler::open(kFakes + "/fake_b.so");
      const bool right = opened.ok() && compile(**opened, kGood) == kPtx &&
                         (*opened)->identity() == "nvrtc 13.7 bbbbbbbbbbbbbbbb";
      const bool inside = compile_processes_started() == 0;
      if (std::string(value) == "maybe" && !log.mentions("'maybe', allowed are on and off"))
        return 2;
      return right && inside == (std::string(value) == "off") ? 0 : 1;
    });
    CHECK(wait_for(child) == 0);
  }
}

TEST_CASE("a process that cannot be started is one clear error") {
  const pid_t child = in_child([] {
    struct rlimit none = {3, 3};
    setrlimit(RLIMIT_NOFILE, &none);
    const auto opened = Compiler::open(kFakes + "/fake_a.so");
    const std::string why = opened.status().text();
    const bool clear = contains(why, "could not be started (memfd_create: Too many open files)") &&
                       contains(why, "LATHE_COMPILE_PROCESS=off");
    return opened.status().code() == Code::compile_failed && clear ? 0 : 1;
  });
  CHECK(wait_for(child) == 0);
}

TEST_CASE("a compiler that the program has loaded answers the usual name") {
  const Environment unnamed("LATHE_NVRTC", std::nullopt);
  const pid_t child = in_child([] {
    if (dlopen((kFakes + "/fake_b.so").c_str(), RTLD_NOW) == nullptr) return 1;
    const auto opened = Compiler::open();
    if (!opened.ok()) return 2;
    return (*opened)->path() == kFakes + "/fake_b.so" && (*opened)->asked() == "libnvrtc.so.13" ? 0
                                                                                                : 3;
  });
  CHECK(wait_for(child) == 0);
}

TEST_CASE("a library that is none is refused with what was tried") {
  for (const char* name : {"/nonexistent/libnvrtc.so", "libc.so.6"}) {
    CAPTURE(name);
    const auto opened = Compiler::open(name);
    CHECK(opened.status().code() == Code::compile_failed);
  }
}
