// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the file of tuned choices: saved, merged and read by many, distrusted, damaged,
// and under faults.
#include "cache/tuned_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "tests/cache/faults.h"
#include "tests/cache/support.h"
#include "tests/cache/tuned_records.h"

using namespace lathe;
using namespace lathe::test;
namespace files = std::filesystem;

namespace {

std::string file_of(const std::string& root) { return root + "/v1/tuned/h100.txt"; }

TunedFile::Change adding(const std::vector<TunedRecord>& records) {
  return [records](std::vector<TunedRecord> there) { return with_fresh(there, records); };
}

// Returns the candidate that a context would choose by this store; REQUIREs that it is one of the
// candidates.
size_t chosen(Store& store) {
  TunedChoices choices(kDevice);
  choices.add_source("user", TunedFile(store, "h100").read().records);
  const size_t index = choices.choose(tuning_key());
  REQUIRE(index < kCandidates.size());
  return index;
}

}  // namespace

TEST_CASE("tuned: saved, merged with what others saved, and read") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path());
  const TunedFile file(*store, "h100");
  CHECK(file.read().records.empty());
  CHECK(file.read().problem.empty());
  REQUIRE(file.update(adding({sample("a")})).ok());
  REQUIRE(TunedFile(*Store::open(place.path()), "h100").update(adding({sample("b")})).ok());
  CHECK(file.read().records.size() == 2);
  CHECK(file.path() == file_of(place.path()));
  struct stat status;
  REQUIRE(stat(file_of(place.path()).c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  CHECK(count_files(place.path(), ".tmp.") == 0);
  // The same records, the same bytes.
  const std::string before = read_file(file_of(place.path()));
  REQUIRE(file.update(adding({sample("b"), sample("a")})).ok());
  CHECK(read_file(file_of(place.path())) == before);
}

TEST_CASE("tuned: savers in many threads lose nothing") {
  const TemporaryDirectory place;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      const auto store = Store::open(place.path());
      for (int j = 0; j < 4; ++j) {
        const auto name = "k" + std::to_string(i) + "_" + std::to_string(j);
        CHECK(TunedFile(*store, "h100").update(adding({sample(name)})).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(TunedFile(*Store::open(place.path()), "h100").read().records.size() == 32);
}

TEST_CASE("tuned: what is not trusted is not read, and told once") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path());
  const TunedFile file(*store, "h100");
  REQUIRE(file.update(adding({sample()})).ok());
  Log log;
  const std::string path = file_of(place.path());
  SUBCASE("a symbolic link") {
    files::rename(path, place / "elsewhere");
    files::create_symlink(place / "elsewhere", path);
    CHECK(file.read().records.empty());
    CHECK(log.mentions("is a symbolic link"));
    REQUIRE(file.update(adding({sample("b")})).ok());  // replaced, not followed
    CHECK(file.read().records.size() == 1);
    CHECK(parse_tuned(read_file(place / "elsewhere"))->records.front().kernel == "causal_conv1d");
  }
  SUBCASE("writable by others") {
    REQUIRE(chmod(path.c_str(), 0622) == 0);
    CHECK(file.read().records.empty());
    CHECK(log.mentions("chmod go-w"));
  }
  SUBCASE("a FIFO") {
    files::remove(path);
    REQUIRE(mkfifo(path.c_str(), 0600) == 0);
    CHECK(file.read().records.empty());
    CHECK(log.mentions("not a regular file"));
    REQUIRE(file.update(adding({sample("b")})).ok());
  }
  SUBCASE("a directory that others can write into") {
    REQUIRE(chmod((place.path() + "/v1/tuned").c_str(), 0777) == 0);
    CHECK(file.read().records.empty());
    CHECK(log.mentions("written by others"));
    CHECK(file.update(adding({sample("b")})).status().code() == Code::cache_io);
  }
  SUBCASE("of a later version, which stays") {
    write_file(path, "lathe-tuned 2\nwhatever\n");
    CHECK(file.read().records.empty());
    const auto saved = file.update(adding({sample("b")}));
    CHECK(saved.status().code() == Code::cache_io);
    CHECK(saved.status().text().find("version 2") != std::string::npos);
    CHECK(read_file(path) == "lathe-tuned 2\nwhatever\n");
  }
  file.read();
  CHECK(log.warnings().size() <= 1);
}

TEST_CASE("tuned: a file of the user") {
  const TemporaryDirectory place;
  write_file(place / "mine.txt", tuned_text({sample()}));
  CHECK(read_tuned_file(place / "mine.txt")->records.size() == 1);
  CHECK(read_tuned_file(place / "none.txt").status().code() == Code::cache_io);
  CHECK(read_tuned_file(place.path()).status().code() == Code::cache_io);
  write_file(place / "no.txt", "hello\n");
  CHECK(read_tuned_file(place / "no.txt").status().code() == Code::invalid_argument);
}

TEST_CASE("tuned: every flip of a byte and every truncation") {
  const TemporaryDirectory place;
  const auto store = Store::open(place.path());
  TunedRecord longer = sample();
  longer.choice = kCandidates[2];
  const std::string good = tuned_text({longer, sample("other")});
  Log log;
  const auto attempt = [&](const std::string& bytes) {
    write_file(file_of(place.path()), bytes);
    REQUIRE(chmod(file_of(place.path()).c_str(), 0600) == 0);
    chosen(*store);
  };
  attempt(good);
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0x01, 0x08, 0x80}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ bit);
      attempt(bytes);
    }
    attempt(good.substr(0, i));
    const auto saved = TunedFile(*store, "h100").update(adding({sample("next")}));
    REQUIRE(saved.ok());
    const auto after = TunedFile(*store, "h100").read();
    CHECK(after.problem.empty());
    CHECK(std::any_of(after.records.begin(), after.records.end(),
                      [](const TunedRecord& record) { return record.kernel == "next"; }));
  }
}

TEST_CASE("tuned: the n-th call of a save fails, and the next one is healthy") {
  const size_t descriptors = open_descriptors();
  for (const int error : {EIO, ENOSPC, EACCES, EROFS, ESTALE, EMFILE, ENOLCK}) {
    for (const bool persistent : {false, true}) {
      for (int at = 1;; ++at) {
        const TemporaryDirectory place;
        const auto quiet = Log();
        REQUIRE(TunedFile(*Store::open(place.path()), "h100").update(adding({sample()})).ok());
        bool reached = false, saved = false;
        {
          const FaultyFileSystem faulty({at, error, persistent});
          const auto store = Store::open(place.path(), faulty.table());
          const auto result = TunedFile(*store, "h100").update(adding({sample("b")}));
          saved = result.ok();
          if (!saved) CHECK(result.status().code() == Code::cache_io);
          reached = faulty.reached();
        }
        const auto store = Store::open(place.path());
        const auto there = TunedFile(*store, "h100").read();
        CHECK(there.problem.empty());
        // The old record is still there, unless the fault kept it from being read for the merge.
        CHECK(there.records.size() >= 1);
        if (saved) CHECK(there.records.size() == 2);
        CHECK(TunedFile(*store, "h100").update(adding({sample("c")})).ok());
        CHECK(chosen(*store) == 1);
        if (!reached) {
          CHECK(saved);
          break;
        }
      }
    }
  }
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("tuned: interrupted calls and single bytes make no difference") {
  for (int at = 1;; ++at) {
    const TemporaryDirectory place;
    Fault fault = {at, EINTR};
    fault.single_bytes = true;
    const FaultyFileSystem faulty(fault);
    const auto store = Store::open(place.path(), faulty.table());
    REQUIRE(TunedFile(*store, "h100").update(adding({sample()})).ok());
    CHECK(chosen(*store) == 1);
    if (!faulty.reached()) break;
  }
}

TEST_CASE("tuned: killed at every call of a save, it is the old database or the new one") {
  for (int at = 1;; ++at) {
    const TemporaryDirectory place;
    REQUIRE(TunedFile(*Store::open(place.path()), "h100").update(adding({sample()})).ok());
    const int status = wait_for(in_child([&] {
      Fault fault = {at};
      fault.kill = true;
      const FaultyFileSystem faulty(fault);
      const auto store = Store::open(place.path(), faulty.table());
      return TunedFile(*store, "h100").update(adding({sample("b")})).ok() ? 0 : 1;
    }));
    const auto store = Store::open(place.path());
    const TunedFile file(*store, "h100");
    const auto there = file.read();
    CHECK(there.problem.empty());
    CHECK((there.records.size() == 1 || there.records.size() == 2));
    REQUIRE(file.update(adding({sample("c")})).ok());
    CHECK(file.read().records.size() == there.records.size() + 1);
    if (WIFEXITED(status)) {
      CHECK(WEXITSTATUS(status) == 0);
      CHECK(there.records.size() == 2);
      break;
    }
    // A file that a killed process left is swept once it is old.
    struct timespec hours[2] = {{0, UTIME_OMIT}, {time(nullptr) - 7200, 0}};
    for (const auto& item : files::directory_iterator(place.path() + "/v1/tuned")) {
      if (item.path().filename().string().starts_with(".tmp.")) {
        utimensat(AT_FDCWD, item.path().c_str(), hours, 0);
      }
    }
    REQUIRE(file.update(adding({sample("d")})).ok());
    CHECK(count_files(place.path(), ".tmp.") == 0);
  }
}
