// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that meet in a folder, among what earlier runs have left there.
#include "collective/rendezvous_folder.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "collective/rendezvous.h"

using namespace lathe;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "lathe-rendezvous-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  const fs::path& path() const { return path_; }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(path_)) {
      out.push_back(entry.path().filename().string());
    }
    return out;
  }

 private:
  fs::path path_;
};

Launch launch(const Folder& folder, int rank, int world, const std::string& run = "/job 7/2") {
  Launch out;
  out.launcher = "Slurm";
  out.rank = rank;
  out.world = world;
  out.folder = folder.path().string();
  out.run = run;
  return out;
}

UniqueId some_id(int seed) {
  UniqueId out;
  for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; ++i) out.bytes[i] = static_cast<char>(3 * i + seed);
  return out;
}

bool same(const UniqueId& a, const UniqueId& b) {
  return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

struct Met {
  Status status;
  UniqueId id{};
};

// All of them, each some milliseconds after the one before; rank 0 has some_id(seed).
std::vector<Met> meet(const std::vector<Launch>& launches, int timeout_ms, int seed = 1,
                      int apart_ms = 0) {
  std::vector<Met> out(launches.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < launches.size(); ++i) {
    threads.emplace_back([&, i] {
      std::this_thread::sleep_for(std::chrono::milliseconds(apart_ms * static_cast<int>(i)));
      if (launches[i].rank == 0) out[i].id = some_id(seed);
      out[i].status = share_unique_id(launches[i], out[i].id, timeout_ms);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

void check_met(const std::vector<Met>& all, int seed) {
  for (const Met& met : all) {
    REQUIRE_MESSAGE(met.status.ok(), met.status.text());
    CHECK(same(met.id, some_id(seed)));
  }
}

bool says(const Status& status, const std::string& words) {
  return status.text().find(words) != std::string::npos;
}

}  // namespace

TEST_CASE("folder: every rank gets rank 0's id, whoever comes first, and nothing is left") {
  const Folder folder;
  for (const int world : {1, 2, 9}) {
    for (const bool backwards : {false, true}) {
      std::vector<Launch> launches;
      for (int i = 0; i < world; ++i) {
        launches.push_back(
            launch(folder, backwards ? world - 1 - i : i, world, "/of " + std::to_string(world)));
      }
      check_met(meet(launches, 20000, world, 3), world);
      CHECK(folder.names().empty());
    }
  }
}

TEST_CASE("folder: names hold the run and its restart, and are plain") {
  const Folder folder;
  const auto met = meet({launch(folder, 1, 2, "/a b:c/4")}, 30);
  CHECK(met[0].status.code() == Code::timeout);
  CHECK_MESSAGE(says(met[0].status, folder.path().string() + "/lathe-a-b-c-4-0.id"),
                met[0].status.text());
  CHECK(says(met[0].status, "rank 1 of 2 waited 30 ms"));
  CHECK(folder.names().empty());
}

TEST_CASE("folder: what a dead run of the same name left is not believed") {
  const Folder folder;
  const std::string run = "/same";
  // The first meeting of ranks 0 and 1 of three, copied while it lasts: a question and an answer.
  const Folder copies;
  std::thread copier([&] {
    for (int attempt = 0; attempt < 2000; ++attempt) {
      const fs::path id = folder.path() / "lathe-same-0.id";
      const fs::path question = folder.path() / "lathe-same-0.rank1";
      std::error_code error;
      fs::copy_file(question, copies.path() / "question", fs::copy_options::skip_existing, error);
      fs::copy_file(id, copies.path() / "id", fs::copy_options::skip_existing, error);
      if (copies.names().size() == 2) return;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const auto dead = meet({launch(folder, 0, 3, run), launch(folder, 1, 3, run)}, 400, 5, 20);
  copier.join();
  CHECK(dead[0].status.code() == Code::timeout);
  CHECK_MESSAGE(says(dead[0].status, "for rank 2 of 3"), dead[0].status.text());
  REQUIRE(copies.names().size() == 2);
  // They lie where the next meeting of these ranks looks.
  fs::copy_file(copies.path() / "id", folder.path() / "lathe-same-1.id");
  fs::copy_file(copies.path() / "question", folder.path() / "lathe-same-1.rank1");
  std::vector<Met> all;
  {
    std::vector<Met> first(1);
    std::thread early([&] { first = meet({launch(folder, 1, 3, run)}, 20000, 6); });
    std::thread third([&] {  // its second meeting too
      (void)meet({launch(folder, 2, 3, run)}, 1);
      check_met(meet({launch(folder, 2, 3, run)}, 20000, 6), 6);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    all = meet({launch(folder, 0, 3, run)}, 20000, 6);
    early.join();
    third.join();
    all.push_back(first[0]);
  }
  check_met(all, 6);
  CHECK(folder.names().empty());
}

TEST_CASE("folder: ranks that do not come are named, and another world's do not count") {
  const Folder folder;
  const auto met = meet(
      {launch(folder, 0, 4, "/w"), launch(folder, 2, 4, "/w"), launch(folder, 3, 5, "/w")}, 300);
  CHECK(met[0].status.code() == Code::timeout);
  CHECK_MESSAGE(says(met[0].status, "waited 300 ms in " + folder.path().string()),
                met[0].status.text());
  CHECK_MESSAGE(says(met[0].status, "for rank 1, 3 of 4"), met[0].status.text());
  CHECK(met[1].status.ok());
  CHECK(met[2].status.code() == Code::timeout);
  CHECK(folder.names().empty());
}

TEST_CASE("folder: one that is not there is named") {
  const Folder folder;
  Launch lost = launch(folder, 1, 2);
  lost.folder += "/nowhere";
  UniqueId id{};
  const Status status = share_unique_id(lost, id, 50);
  CHECK(status.code() == Code::invalid_argument);
  CHECK_MESSAGE(says(status, "LATHE_RENDEZVOUS_DIR is " + lost.folder), status.text());
  CHECK_MESSAGE(says(status, "No such file or directory"), status.text());
}
