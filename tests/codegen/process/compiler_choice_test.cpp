// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests check which of several compilers is taken, by the code that the driver loads.
#include <doctest/doctest.h>

#include "codegen/compiler_library.h"
#include "codegen/nvrtc_library.h"
#include "codegen/process/compile_process.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

namespace {

const std::string kFakes = LATHE_FAKE_NVRTC_DIR;

}  // namespace

TEST_CASE("the first compiler is taken whose code the driver loads") {
  const std::string k13 = "nvrtc 13.0 dddddddddddddddd", k12 = "nvrtc 12.4 cccccccccccccccc";
  const std::string needed =
      "the driver, of CUDA 12.4, loads no code of a newer major version; "
      "found is NVRTC 13.0 (" +
      kFakes +
      "/fake_13.so), needed is NVRTC 12: "
      "pip install nvidia-cuda-nvrtc-cu12 and set LATHE_NVRTC to its "
      "libnvrtc.so.12";
  const struct {
    std::vector<std::string> names;
    int driver;
    std::string expected;
  } kCases[] = {
      {{"13", "12"}, 0, k13},     {{"13", "12"}, 13000, k13},      {{"13", "12"}, 12040, k12},
      {{"12", "13"}, 13000, k12}, {{"none", "12"}, 12090, k12},    {{"12"}, 12000, k12},
      {{"13"}, 12040, needed},    {{"none", "13"}, 12040, needed},
  };
  for (const auto& each : kCases) {
    std::vector<CompilerCandidate> candidates;
    for (const std::string& name : each.names) {
      candidates.push_back({name, kFakes + "/fake_" + name + ".so"});
    }
    const auto inside = NvrtcLibrary::open(candidates, each.driver);
    const auto outside = CompileProcesses::open(candidates, each.driver, "");
    CHECK((inside.ok() ? (*inside)->facts().identity : inside.status().text()) == each.expected);
    CHECK((outside.ok() ? (*outside)->facts().identity : outside.status().text()) == each.expected);
  }
}

TEST_CASE("the newest major version is looked for everywhere before the next") {
  const Environment unnamed("LATHE_NVRTC", std::nullopt);
  for (const int driver : {0, 12040, 13000}) {
    CAPTURE(driver);
    const auto candidates = compiler_candidates({}, driver);
    const std::string first = driver == 12040 ? "12" : "13", last = driver == 12040 ? "13" : "12";
    CHECK(candidates.front().file == "libnvrtc.so." + first);
    bool behind = false;
    for (const CompilerCandidate& each : candidates) {
      behind = behind || each.file == "libnvrtc.so." + last;
      if (each.file != "libnvrtc.so") CHECK(each.file.ends_with(behind ? last : first));
    }
    CHECK(behind);
  }
}

TEST_CASE("the version in an identity") {
  CHECK(version_of_identity("nvrtc 13.0 65be0db3") == CompilerVersion{13, 0});
  CHECK(version_of_identity("nvrtc 12.4 no-build-id") == CompilerVersion{12, 4});
  CHECK(version_of_identity("nvrtc 12.9 x") < version_of_identity("nvrtc 13.0 x"));
  CHECK(version_of_identity("nvrtc 12.4 x") < version_of_identity("nvrtc 12.10 x"));
  for (const char* other : {"", "nvrtc", "nvrtc ", "nvrtc 13", "nvrtc 12.x", "nvrtc 12.-1",
                            "clang 19.1", "nvrtc 99999999999999999999.1"}) {
    CHECK(version_of_identity(other) == CompilerVersion{});
  }
}
