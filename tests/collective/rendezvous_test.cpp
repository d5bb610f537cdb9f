// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover ranks as threads that meet on the loopback interface.
#include "collective/rendezvous/rendezvous.h"

#include "tests/collective/fakes.h"
#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;

TEST_CASE("every rank gets rank 0's id, whoever comes first") {
  for (const int world : {1, 2, 9}) {
    const int port = free_port();
    std::vector<Launch> launches;
    for (int rank = world - 1; rank >= 0; --rank) launches.push_back(at_port(rank, world, port));
    check_met(meet(launches, 20000));
  }
}

TEST_CASE("ranks that do not come are named; strangers do not count") {
  const int port = free_port();
  Launch stranger = at_port(1, 4, port);
  stranger.run = "/yesterday";
  const auto met = meet({at_port(0, 4, port), at_port(2, 4, port), stranger}, 700);
  CHECK(met[0].status.code() == Code::timeout);
  CHECK_MESSAGE(met[0].status.text().find("rank 1, 3 of 4") != std::string::npos,
                met[0].status.text());
  CHECK(met[0].status.text().find("rank 1 of another run") != std::string::npos);
  CHECK(met[1].status.ok());
  CHECK(met[2].status.code() == Code::timeout);
  CHECK_FALSE(same(met[2].id, some_id()));
}

TEST_CASE("another world size is an error on both sides") {
  const int port = free_port();
  const auto met = meet({at_port(0, 2, port), at_port(1, 3, port)}, 700);
  CHECK(met[0].status.code() == Code::timeout);
  CHECK_MESSAGE(met[0].status.text().find("a rank 1 of 3") != std::string::npos,
                met[0].status.text());
  CHECK(met[1].status.code() == Code::invalid_argument);
  CHECK_MESSAGE(met[1].status.text().find("told of 3 ranks, rank 0 of 2") != std::string::npos,
                met[1].status.text());
}

TEST_CASE("an address that does not answer is named") {
  const int port = free_port();
  UniqueId id{};
  const Status status = share_unique_id(at_port(1, 2, port), id, 50);
  CHECK(status.code() == Code::timeout);
  CHECK(status.text().find("127.0.0.1 port " + std::to_string(port)) != std::string::npos);
}

TEST_CASE("a talker that is not of ours is turned away and the others are served") {
  const int port = free_port();
  std::thread noise([port] {
    const sockaddr_in to = ipv4("127.0.0.1", port);
    for (int attempt = 0; attempt < 500; ++attempt) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
        (void)!write(fd, "GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n", 36);
        char answer[8];
        CHECK(read(fd, answer, sizeof answer) <= 0);
        close(fd);
        return;
      }
      close(fd);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL_CHECK("nobody listened");
  });
  // The rank comes late, so that the noise is there first.
  std::thread late;
  UniqueId got{};
  Status status(Code::internal, "not run");
  std::thread server([port] {
    UniqueId id = some_id();
    CHECK(share_unique_id(at_port(0, 2, port), id, 20000).ok());
  });
  noise.join();
  status = share_unique_id(at_port(1, 2, port), got, 20000);
  server.join();
  CHECK(status.ok());
  CHECK(same(got, some_id()));
}

TEST_CASE("the drop-in's ranks are threads: a launcher's processes are refused") {
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  const auto group = group_from_environment(fakes::device(), NcclChoice::threads, 50);
  CHECK(group.status().code() == Code::unsupported);
  CHECK(group.status().text().find("threads of one process") != std::string::npos);
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR"}) unsetenv(name);
}
