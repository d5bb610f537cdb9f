// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the file of a bundle: which ones are opened, whose place it takes, and what
// killed packers leave.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>

#include "cache/bundle/bundle.h"
#include "cache/store/store.h"
#include "codegen/base/text.h"
#include "tests/cache/bundle/bundles.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

std::string why_refused(const std::string& path) {
  const auto bundle = Bundle::open(path);
  if (bundle.ok()) return {};
  CHECK(bundle.status().code() == Code::invalid_argument);
  CHECK(bundle.status().text().find(path) != std::string::npos);
  return bundle.status().text();
}

}  // namespace

TEST_CASE("what may not be trusted or is no file is refused, with the remedy") {
  const TemporaryDirectory place;
  pack_all(place / "b", {{sample_entry("a")}});
  CHECK(why_refused(place / "b").empty());
  files::create_symlink(place / "b", place / "link");
  CHECK(why_refused(place / "link").empty());
  for (const mode_t mode : {0664, 0646, 0777}) {
    REQUIRE(chmod((place / "b").c_str(), mode) == 0);
    CHECK(why_refused(place / "b").find("chmod go-w") != std::string::npos);
    CHECK(why_refused(place / "link").find("chmod go-w") != std::string::npos);
  }
  REQUIRE(chmod((place / "b").c_str(), 0444) == 0);
  CHECK(why_refused(place / "b").empty());
  if (geteuid() == 0) {
    REQUIRE(chown((place / "b").c_str(), 12345, 12345) == 0);
    CHECK(why_refused(place / "b").find("12345") != std::string::npos);
  }
  CHECK(why_refused(place.path()).find("not a regular file") != std::string::npos);
  REQUIRE(mkfifo((place / "fifo").c_str(), 0600) == 0);
  CHECK(why_refused(place / "fifo").find("not a regular file") != std::string::npos);
  CHECK(why_refused(place / "nowhere").find("No such file") != std::string::npos);
  CHECK(why_refused(place / "b/below").find("Not a directory") != std::string::npos);
}

TEST_CASE("a bundle takes the place of a file or of nothing: links, pipes and folders stay") {
  const TemporaryDirectory place;
  Entries entries({sample_entry("a")});
  pack_all(place / "from", {{sample_entry("a")}});
  REQUIRE(mkfifo((place / "pipe").c_str(), 0600) == 0);
  files::create_symlink(place / "from", place / "link");
  files::create_symlink(place / "nowhere", place / "dangling");
  files::create_directory(place / "folder");
  const std::pair<const char*, const char*> targets[] = {{"pipe", "a pipe"},
                                                         {"link", "a symbolic link"},
                                                         {"dangling", "a symbolic link"},
                                                         {"folder", "a folder"}};
  for (const auto& [name, kind] : targets) {
    CAPTURE(name);
    const std::string path = place / name;
    const auto before = files::symlink_status(path).type();
    for (const auto& report :
         {pack_bundle(path, {&entries}, nullptr, {}), merge_bundles(path, {place / "from"})}) {
      CHECK(report.status().code() == Code::invalid_argument);
      CHECK(report.status().text().find(kind) != std::string::npos);
      CHECK(report.status().text().find("regular file") != std::string::npos);
    }
    CHECK(files::symlink_status(path).type() == before);
  }
  CHECK_FALSE(files::exists(place / "nowhere"));
  CHECK(std::distance(files::directory_iterator(place.path()), {}) == 5);
}

TEST_CASE("a bundle that cannot be put in its place says which step failed") {
  const TemporaryDirectory place;
  Entries entries({sample_entry("a")});
  const auto fails = [&](const std::string& path, Code code, const std::string& part) {
    const auto report = pack_bundle(path, {&entries}, nullptr, {});
    REQUIRE_FALSE(report.ok());
    CHECK(report.status().code() == code);
    CHECK(report.status().text().find(part) != std::string::npos);
  };
  fails("", Code::invalid_argument, "not the name of a file");
  fails(place / "", Code::invalid_argument, "not the name of a file");
  fails(place / "none/b", Code::cache_io, "open its directory");
  files::create_directory(place / "folder");
  fails(place / "folder", Code::invalid_argument, "is a folder");
  CHECK(count_files(place.path(), ".tmp.") == 0);
}

TEST_CASE("temporary files of killed packers go after an hour, others' files stay") {
  const TemporaryDirectory place;
  const auto left_behind = [&](const std::string& name, long age) {
    write_file(place / name, "x");
    const time_t now = time(nullptr);
    const struct timespec times[2] = {{now - age, 0}, {now - age, 0}};
    utimensat(AT_FDCWD, (place / name).c_str(), times, 0);
  };
  left_behind(".b.tmp.1.2", 7200);
  left_behind(".b.tmp.1.3", 60);
  left_behind(".c.tmp.1.2", 7200);
  left_behind("b.tmp.1.2", 7200);
  pack_all(place / "b", {{sample_entry("a")}});
  CHECK_FALSE(files::exists(place / ".b.tmp.1.2"));
  CHECK(files::exists(place / ".b.tmp.1.3"));
  CHECK(files::exists(place / ".c.tmp.1.2"));
  CHECK(files::exists(place / "b.tmp.1.2"));
}
