// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover ranks as threads and as processes that meet in a folder, at different times,
// among what earlier runs and other people have left there.
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>
#include <future>
#include <latch>

#include "collective/rendezvous/rendezvous.h"
#include "collective/rendezvous/rendezvous_messages.h"
#include "tests/collective/planted.h"
#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;
using std::chrono::milliseconds;

namespace {

constexpr int kLong = 30000;  // a timeout that no sound run reaches

Launch launch(const Folder& folder, int rank, int world, const std::string& run = "/job 7/2") {
  Launch out;
  out.launcher = "Slurm";
  out.rank = rank;
  out.world = world;
  out.folder = folder.path().string();
  out.run = run;
  return out;
}

void put(const Folder& folder, const std::string& name, const std::string& bytes) {
  std::ofstream(folder.path() / name, std::ios::binary) << bytes;
}

std::optional<MeetingQuestion> question(const Folder& folder, const Launch& launch) {
  std::ifstream file(folder.path() / question_name(launch.run, launch.rank), std::ios::binary);
  return decode_question(std::string(std::istreambuf_iterator<char>(file), {}));
}

MeetingQuestion question_of(const Launch& launch, char value) {
  MeetingQuestion out;
  out.world = static_cast<uint32_t>(launch.world);
  out.rank = static_cast<uint32_t>(launch.rank);
  out.run = sha256(launch.run);
  out.nonce = nonce(value);
  return out;
}

// Writes what a rank 0 that is gone has written for questions with these nonces.
Answer answer_of(const Launch& launch, const std::vector<Nonce>& nonces) {
  Answer out;
  out.run = sha256(launch.run);
  out.meeting = nonce('d');
  out.id = some_id(99);
  out.nonces = nonces;
  return out;
}

// Starts a rank in a process of its own, which exits with 0 if it has got the id of `seed`. It
// first fails `attempts` times, and then writes a byte to `told`.
pid_t process(const Launch& launch, int attempts, int told, int seed) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  UniqueId id = launch.rank == 0 ? some_id(seed) : UniqueId{};
  for (int i = 0; i < attempts; ++i) (void)share_unique_id(launch, id, 20);
  if (attempts > 0) (void)!write(told, "x", 1);
  const Status status = share_unique_id(launch, id, kLong);
  _exit(status.ok() && same(id, some_id(seed)) ? 0 : 1);
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
      check_met(meet(launches, kLong, world, 3), world);
      CHECK(folder.names().empty());
    }
  }
}

TEST_CASE("folder: names hold the run and its restart, are plain, and differ where runs do") {
  const Folder folder;
  const auto met = meet({launch(folder, 1, 2, "/a b:c/4")}, 30);
  CHECK(met[0].status.code() == Code::timeout);
  CHECK_MESSAGE(says(met[0].status, folder.path().string() + "/lathe-a-b-c-4-"),
                met[0].status.text());
  CHECK(says(met[0].status, "rank 1 of 2 waited 30 ms"));
  CHECK(folder.names().empty());
  CHECK(answer_name("").starts_with("lathe-run-"));
  CHECK(answer_name("/a/b") != answer_name("/a-b"));
  const std::string long_run(300, 'x');
  CHECK(answer_name(long_run + "1") != answer_name(long_run + "2"));
  CHECK(answer_name(long_run).size() < 200);
}

TEST_CASE("folder: ranks that failed before, each at other times, meet once they overlap") {
  constexpr int kWorld = 4;
  for (int last = 0; last < kWorld; ++last) {  // who comes when all others have failed
    const Folder folder;
    Met met[kWorld];
    std::latch failed(kWorld - 1);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kWorld; ++rank) {
      threads.emplace_back([&, rank] {
        const Launch self = launch(folder, rank, kWorld);
        met[rank].id = some_id(rank == 0 ? 4 : 40);
        // Each another number of times, and for another time.
        for (int i = 0; rank != last && i <= rank; ++i) {
          CHECK(share_unique_id(self, met[rank].id, 20 + 15 * rank).code() == Code::timeout);
        }
        if (rank == last) {
          failed.wait();
        } else {
          failed.count_down();
        }
        met[rank].status = share_unique_id(self, met[rank].id, kLong);
      });
    }
    for (std::thread& thread : threads) thread.join();
    check_met({std::begin(met), std::end(met)}, 4);
    CHECK(folder.names().empty());
  }
}

TEST_CASE("folder: processes meet, and meet again") {
  const Folder folder;
  for (int seed = 1; seed <= 3; ++seed) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    std::vector<pid_t> pids;
    // Rank 2 is not there before the others have failed.
    for (const int rank : {0, 1, 3}) {
      pids.push_back(process(launch(folder, rank, 4), rank + 1, ends[1], seed));
    }
    char byte;
    for (int i = 0; i < 3; ++i) REQUIRE(read(ends[0], &byte, 1) == 1);
    pids.push_back(process(launch(folder, 2, 4), 0, ends[1], seed));
    for (const pid_t pid : pids) {
      int status = -1;
      REQUIRE(waitpid(pid, &status, 0) == pid);
      CHECK(status == 0);
    }
    for (const int end : ends) close(end);
    CHECK(folder.names().empty());
  }
}

TEST_CASE("folder: a rank 0 that is killed and started again meets the ranks that wait") {
  const Folder folder;
  const pid_t first = process(launch(folder, 0, 3), 0, -1, 1);
  auto waiting =
      std::async(std::launch::async, [&] { return meet({launch(folder, 1, 3)}, kLong); });
  std::this_thread::sleep_for(milliseconds(100));
  REQUIRE(kill(first, SIGKILL) == 0);
  REQUIRE(waitpid(first, nullptr, 0) == first);
  check_met(meet({launch(folder, 0, 3), launch(folder, 2, 3)}, kLong, 2), 2);
  check_met(waiting.get(), 2);
  CHECK(folder.names().empty());
}

TEST_CASE("folder: a rank that took the id of a rank 0 that is gone does not count for the next") {
  const Folder folder;
  const Launch one = launch(folder, 1, 2);
  auto early = std::async(std::launch::async, [&] { return meet({one}, kLong); });
  std::optional<MeetingQuestion> asked;
  while (!(asked = question(folder, one))) std::this_thread::sleep_for(milliseconds(1));
  const std::string dead = encode(answer_of(one, {Nonce{}, asked->nonce}));
  put(folder, "dead", dead);
  std::filesystem::rename(folder.path() / "dead", folder.path() / answer_name(one.run));
  check_met(early.get(), 99);
  REQUIRE(question(folder, one));
  CHECK(question(folder, one)->has_id);
  const auto alone = meet({launch(folder, 0, 2)}, 200);
  CHECK(alone[0].status.code() == Code::timeout);
  CHECK_MESSAGE(says(alone[0].status, "for rank 1 of 2"), alone[0].status.text());
  check_met(meet({launch(folder, 0, 2), one}, kLong, 2), 2);
  CHECK(folder.names().empty());
}

TEST_CASE("folder: what a dead run of the same name left is not believed") {
  const Launch any[] = {Launch(), launch(Folder(), 1, 3), launch(Folder(), 2, 3)};
  for (const int late : {0, 1, 2}) {  // who comes last
    for (const bool confirmed : {false, true}) {
      CAPTURE(late);
      CAPTURE(confirmed);
      const Folder folder;
      for (int rank = 1; rank < 3; ++rank) {
        MeetingQuestion old = question_of(any[rank], static_cast<char>('a' + rank));
        old.has_id = confirmed;
        if (confirmed) old.meeting = nonce('d');
        put(folder, question_name(any[1].run, rank), encode(old));
      }
      put(folder, answer_name(any[1].run),
          encode(answer_of(any[1], {Nonce{}, nonce('b'), nonce('c')})));
      std::vector<Launch> launches;
      for (const int rank : {1, 2, 3}) launches.push_back(launch(folder, (late + rank) % 3, 3));
      check_met(meet(launches, kLong, 6, 30), 6);
      CHECK(folder.names().empty());
    }
  }
}

TEST_CASE("folder: ranks that do not come are named, and then no rank has the id") {
  const Folder folder;
  const auto met = meet(
      {launch(folder, 0, 4, "/w"), launch(folder, 2, 4, "/w"), launch(folder, 3, 5, "/w")}, 300);
  CHECK(met[0].status.code() == Code::timeout);
  CHECK_MESSAGE(says(met[0].status, "waited 300 ms in " + folder.path().string()),
                met[0].status.text());
  CHECK_MESSAGE(says(met[0].status, "for rank 1, 3 of 4: no lathe-w-"), met[0].status.text());
  for (const size_t rank : {1, 2}) {
    CHECK(met[rank].status.code() == Code::timeout);
    CHECK(same(met[rank].id, UniqueId{}));
  }
  CHECK(folder.names().empty());
}

TEST_CASE("folder: one that is not there is named") {
  const Folder folder;
  for (const int rank : {0, 1}) {
    Launch lost = launch(folder, rank, 2);
    lost.folder += "/nowhere";
    UniqueId id{};
    const Status status = share_unique_id(lost, id, 50);
    CHECK(status.code() == Code::invalid_argument);
    CHECK_MESSAGE(says(status, "LATHE_RENDEZVOUS_DIR is " + lost.folder), status.text());
    CHECK_MESSAGE(says(status, "No such file or directory"), status.text());
  }
}

TEST_CASE("folder: nothing in place of a file holds a rank beyond its timeout, or is followed") {
  for (const Planted& each : planted()) {
    for (const int rank : {0, 1}) {
      CAPTURE(each.kind);
      CAPTURE(rank);
      const Folder folder;
      const Victim victim(folder);
      const Launch self = launch(folder, rank, 2);
      // Only a rank removes what rank 0 reads; only rank 0 removes what a rank reads.
      const std::string name = rank == 0 ? question_name(self.run, 1) : answer_name(self.run);
      if (!each.plant((folder.path() / name).string(), victim.path)) continue;
      auto alone = std::async(std::launch::async, [&] { return meet({self}, 60)[0].status; });
      REQUIRE(alone.wait_for(milliseconds(kLong)) == std::future_status::ready);
      const Status status = alone.get();
      CHECK(status.code() == Code::timeout);
      CHECK_MESSAGE(says(status, "refused was " + name + ", which "), status.text());
      CHECK_MESSAGE(says(status, each.refused), status.text());
      const auto met =
          meet({launch(folder, 0, 2), launch(folder, 1, 2)}, each.replaced ? kLong : 60);
      if (each.replaced) {
        check_met(met);
        CHECK(folder.names().size() == 1);
      } else {
        const Status& writer = met[rank == 0 ? 1 : 0].status;
        CHECK(writer.code() == Code::invalid_argument);
        CHECK_MESSAGE(says(writer, name + ": Is a directory"), writer.text());
      }
      CHECK(victim.is_whole());
    }
  }
}

TEST_CASE("folder: a question that somebody removes is asked again") {
  const Folder folder;
  std::atomic<bool> over{false};
  std::thread broom([&] {
    while (!over) {
      for (const std::string& name : folder.names()) {
        if (name.starts_with("lathe-")) std::filesystem::remove(folder.path() / name);
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  auto early = std::async(std::launch::async, [&] {
    return meet({launch(folder, 0, 3), launch(folder, 1, 3)}, kLong);
  });
  std::this_thread::sleep_for(milliseconds(300));
  over = true;
  broom.join();
  check_met(meet({launch(folder, 2, 3)}, kLong));
  check_met(early.get());
  CHECK(folder.names().empty());
}
