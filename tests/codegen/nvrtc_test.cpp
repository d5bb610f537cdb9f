// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the compiler library: identity, options, failures.
#include "codegen/nvrtc.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

using namespace lathe;

namespace {

std::shared_ptr<const Compiler> compiler() {
  const auto opened = Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return nullptr;
  }
  return *opened;
}

constexpr char kUnit[] = R"(#include "common/math.cuh"
extern "C" __global__ void entry(float* p) { *p = lathe::silu(*p); }
)";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("options that enter the key") {
  const std::vector<std::string>& options = Compiler::options();
  CHECK(std::is_sorted(options.begin(), options.end()));
  for (const char* wanted : {"-std=c++17", "--no-source-include", "--ptxas-options=-v"}) {
    CHECK(std::count(options.begin(), options.end(), wanted) == 1);
  }
  for (const std::string& option : options) {
    CHECK_FALSE(contains(option, "-no-cache"));
    CHECK_FALSE(contains(option, "-arch"));
    CHECK_FALSE(contains(option, "\n"));
  }
}

TEST_CASE("a path that is no compiler is refused by name, without falling back") {
  const auto opened = Compiler::open("/nonexistent/libnvrtc.so");
  REQUIRE(!opened.ok());
  CHECK(opened.status().code() == Code::compile_failed);
  CHECK(contains(opened.status().text(), "/nonexistent/libnvrtc.so"));
  CHECK(contains(opened.status().text(), "LATHE_NVRTC"));
  CHECK_FALSE(Compiler::open("libc.so.6").ok());
}

TEST_CASE("identity holds the version and the build id") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::istringstream words(nvrtc->identity());
  std::string name, version, build;
  words >> name >> version >> build;
  CHECK(name == "nvrtc");
  CHECK(contains(version, "."));
  CHECK(build.size() == 40);
  CHECK(build.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(contains(nvrtc->path(), "nvrtc"));
  CHECK(std::count(nvrtc->archs().begin(), nvrtc->archs().end(), "sm_90") == 1);
}

TEST_CASE("a good unit gives cubin, PTX and a full report") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const auto compiled = nvrtc->compile(kUnit, "sm_80");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  CHECK(compiled->cubin.substr(0, 4) ==
        "\x7f"
        "ELF");
  CHECK(contains(compiled->ptx, ".target sm_80"));
  CHECK(contains(compiled->ptx, ".entry entry("));
  CHECK(compiled->ptx.back() != '\0');
  CHECK(compiled->report.registers > 0);
  CHECK(compiled->report.stack_bytes == 0);
  CHECK(contains(compiled->report.ptx_banner, "release"));
  CHECK(compiled->report.milliseconds > 0);
}

TEST_CASE("a bad unit gives the log, the options and the saved text") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const std::string unit =
      "// broken arch=sm_80\n#include \"common/math.cuh\"\nint x = \"text\";\n";
  const auto compiled = nvrtc->compile(unit, "sm_80");
  REQUIRE(!compiled.ok());
  CHECK(compiled.status().code() == Code::compile_failed);
  const std::string& text = compiled.status().text();
  CHECK(contains(text, "// broken arch=sm_80"));
  CHECK(contains(text, "/lathe/entry.cu(3): error"));
  CHECK(contains(text, "-arch=sm_80"));
  const std::string before = "unit saved in ";
  REQUIRE(contains(text, before));
  const size_t from = text.find(before) + before.size();
  const std::string path = text.substr(from, text.find('\n', from) - from);
  std::ifstream file(path);
  REQUIRE(file.good());
  std::stringstream saved;
  saved << file.rdbuf();
  CHECK(saved.str() == unit);
  std::remove(path.c_str());
}

TEST_CASE("only embedded headers are found, and an unknown architecture fails") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  for (const char* unit : {"#include \"CMakeLists.txt\"\n", "#include <stdio.h>\n"}) {
    const auto compiled = nvrtc->compile(unit, "sm_80");
    REQUIRE(!compiled.ok());
    const std::string& text = compiled.status().text();
    const size_t from = text.find("unit saved in ") + 14;
    std::remove(text.substr(from, text.find('\n', from) - from).c_str());
  }
  const auto compiled = nvrtc->compile(kUnit, "sm_7");
  REQUIRE(!compiled.ok());
  const std::string& text = compiled.status().text();
  const size_t from = text.find("unit saved in ") + 14;
  std::remove(text.substr(from, text.find('\n', from) - from).c_str());
}

namespace {

volatile sig_atomic_t interrupts = 0;

}  // namespace

TEST_CASE("a compile under interrupts") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const auto before = signal(SIGINT, [](int) { interrupts = 1; });
  std::atomic<bool> over{false};
  std::thread keys([&, compiling = pthread_self()] {
    while (!over) {
      pthread_kill(compiling, SIGINT);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  CHECK(nvrtc->compile(kUnit, "sm_90a").ok());
  over = true;
  keys.join();
  CHECK(interrupts == 1);
  signal(SIGINT, before);
}

TEST_CASE(
    "an interrupt during the first compile of a process is the program's, not the compiler's") {
  if (!compiler()) return;
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    execl("/proc/self/exe", "codegen_test", "-m", "-tc=a compile under interrupts",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
