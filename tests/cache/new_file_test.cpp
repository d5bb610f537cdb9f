// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover files that take their place whole or not at all, and what they never replace.
#include "cache/store/new_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cache/faults.h"
#include "tests/cache/support.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

Status write(const std::string& path, const FileSystem& fs = real_fs()) {
  NewFile file("output", path, fs);
  Status status = file.create();
  if (status.ok()) status = file.write("new");
  return status.ok() ? file.put_in_place() : status;
}

size_t count(const std::string& folder) {
  return static_cast<size_t>(std::distance(files::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("a new file takes the place of a file or of nothing") {
  const TemporaryDirectory place;
  for (int round = 0; round < 2; ++round) {
    REQUIRE(write(place / "a").ok());
    CHECK(read_file(place / "a") == "new");
    CHECK(count(place.path()) == 1);
    write_file(place / "a", "old");
  }
  const std::string longest(255, 'x');
  REQUIRE(write(place / longest).ok());
  {
    NewFile file("output", place / "a");
    REQUIRE(file.create().ok());
    CHECK(count(place.path()) == 3);
    CHECK(read_file(place / "a") == "old");
  }
  CHECK(count(place.path()) == 2);
}

TEST_CASE("a new file takes the place of nothing else, also of what comes meanwhile") {
  const TemporaryDirectory place;
  files::create_symlink(place / "nowhere", place / "link");
  files::create_directory(place / "folder");
  REQUIRE(mkfifo((place / "pipe").c_str(), 0600) == 0);
  for (const char* name : {"link", "folder", "pipe", "."}) {
    CAPTURE(name);
    const auto before = files::symlink_status(place / name).type();
    CHECK(write(place / name).code() == Code::invalid_argument);
    CHECK(files::symlink_status(place / name).type() == before);
  }
  CHECK(write("").code() == Code::invalid_argument);
  CHECK(write("/dev/null").code() == Code::invalid_argument);
  CHECK(write(place / "none/a").code() == Code::cache_io);

  NewFile file("output", place / "a");
  REQUIRE(file.create().ok());
  files::create_symlink(place / "nowhere", place / "a");
  CHECK(file.put_in_place().code() == Code::invalid_argument);
  CHECK(files::is_symlink(place / "a"));
}

TEST_CASE("file calls that fail leave the old file or the new one") {
  const TemporaryDirectory place;
  for (const int error : {EIO, ENOSPC, EINTR, EACCES}) {
    for (int at = 1;; ++at) {
      CAPTURE(error);
      CAPTURE(at);
      REQUIRE(at < 50);
      write_file(place / "a", "old");
      Fault fault;
      fault.at = at, fault.error = error;
      const FaultyFileSystem faulty(fault);
      const Status status = write(place / "a", faulty.table());
      const std::string now = read_file(place / "a");
      CHECK((now == "new" || (now == "old" && !status.ok())));
      if (error == EINTR) CHECK(status.ok());
      if (!faulty.reached()) break;
      for (const auto& item : files::directory_iterator(place.path())) files::remove(item.path());
    }
  }
}
