// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover units that did not compile: where they are kept, and how many.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <iterator>

#include "codegen/nvrtc.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;

namespace {

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("a unit is saved under its kernel's name, once however often it fails") {
  const TemporaryDirectory place;
  const Environment temporary("TMPDIR", place.path());
  const std::string unit = "// causal_conv1d x=bf16\nint x;\n";
  const std::string path = save_failed_unit(unit);
  CHECK(read_file(path) == unit);
  CHECK(path.find("/causal_conv1d-") != std::string::npos);
  CHECK(save_failed_unit(unit) == path);
  const std::string folder = std::filesystem::path(path).parent_path();
  CHECK(files_in(folder) == 1);
  struct stat status;
  REQUIRE(stat(folder.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0700);
}

TEST_CASE("sixteen units are kept, those that failed last") {
  const TemporaryDirectory place;
  const Environment temporary("TMPDIR", place.path());
  std::string path;
  for (int i = 0; i < 40; ++i) path = save_failed_unit("// kernel\n" + std::to_string(i));
  CHECK(files_in(std::filesystem::path(path).parent_path()) == 16);
  CHECK(read_file(path) == "// kernel\n39");
}

TEST_CASE("a unit without a name, and names that are none") {
  const TemporaryDirectory place;
  const Environment temporary("TMPDIR", place.path());
  for (const std::string unit : {"", "\n", "// ../../x\n", "//", "__global__ void k();"}) {
    CAPTURE(unit);
    const std::string path = save_failed_unit(unit);
    CHECK(std::filesystem::path(path).parent_path().parent_path() == place.path());
    CHECK(read_file(path) == unit);
  }
}

TEST_CASE("a folder that is a link, or that others may write, is not used") {
  for (const bool link : {true, false}) {
    CAPTURE(link);
    const TemporaryDirectory place;
    const Environment temporary("TMPDIR", place.path());
    const std::string folder = place / ("lathe-failed-" + std::to_string(geteuid()));
    if (link) {
      std::filesystem::create_directory(place / "elsewhere");
      std::filesystem::create_directory_symlink(place / "elsewhere", folder);
    } else {
      std::filesystem::create_directory(folder);
      std::filesystem::permissions(folder, std::filesystem::perms::all);
    }
    CHECK(save_failed_unit("// kernel\n").empty());
    CHECK(files_in(folder) == 0);
  }
}
