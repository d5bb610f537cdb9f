// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover things in place of the files of a meeting: none is followed, waited for, or
// believed.
#include "collective/rendezvous/meeting_folder.h"

#include "tests/collective/planted.h"
#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;

TEST_CASE("meeting folder: what is written is read, and nothing else is left") {
  const Folder folder;
  auto files = MeetingFolder::open(folder.path().string());
  REQUIRE_MESSAGE(files.ok(), files.status().text());
  CHECK(folder.names().empty());
  CHECK_FALSE(files->read("a", 3));
  CHECK(files->refused().empty());  // nothing was there
  CHECK(files->write("a", "one").ok());
  CHECK(files->write("a", "two").ok());
  CHECK(files->read("a", 3) == "two");
  CHECK_FALSE(files->read("a", 2));
  CHECK(files->refused() == "a, which has 3 bytes; expected are 2");
  struct stat status;
  REQUIRE(stat((folder.path() / "a").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(folder.names() == std::vector<std::string>{"a"});
  CHECK(files->remove("a"));
  CHECK(files->remove("a"));
  CHECK(folder.names().empty());
}

TEST_CASE("meeting folder: whatever lies there is refused by kind, and replaced by a write") {
  for (const Planted& each : planted()) {
    CAPTURE(each.kind);
    const Folder folder;
    const Victim victim(folder);
    auto files = MeetingFolder::open(folder.path().string());
    REQUIRE(files.ok());
    if (!each.plant((folder.path() / "a").string(), victim.path)) continue;
    CHECK_FALSE(files->read("a", 3));
    CHECK_MESSAGE(files->refused().find(each.refused) != std::string::npos, files->refused());
    const Status written = files->write("a", "new");
    CHECK(written.ok() == each.replaced);
    if (each.replaced) {
      CHECK(files->read("a", 3) == "new");
    } else {
      CHECK(written.code() == Code::invalid_argument);
      CHECK_MESSAGE(says(written, "cannot write a: Is a directory"), written.text());
    }
    CHECK(folder.names().size() == 2);  // and no temporary
    CHECK(victim.is_whole());
  }
}

TEST_CASE("meeting folder: one in which no file can be made is named") {
  const Folder folder;
  const Victim file(folder);
  for (const std::string& path : {folder.path().string() + "/nowhere", file.path}) {
    const Status status = MeetingFolder::open(path).status();
    CHECK(status.code() == Code::invalid_argument);
    CHECK_MESSAGE(says(status, "LATHE_RENDEZVOUS_DIR is " + path + ": cannot open"), status.text());
  }
  CHECK(
      says(MeetingFolder::open("/proc").status(), "LATHE_RENDEZVOUS_DIR is /proc: cannot create"));
}
