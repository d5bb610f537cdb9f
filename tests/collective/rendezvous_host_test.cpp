// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover rank 0 among connections that say nothing, that stop in the middle, that do not
// know the secret, and where descriptors are short.
#include <dlfcn.h>

#include <atomic>
#include <future>

#include "collective/rendezvous/rendezvous.h"
#include "collective/rendezvous/rendezvous_talk.h"
#include "collective/rendezvous/socket.h"
#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;
using std::chrono::milliseconds;

namespace {

std::atomic<bool> descriptors_are_short{false};
std::atomic<int> refused_accepts{0};

Deadline soon() { return std::chrono::steady_clock::now() + milliseconds(20000); }

std::future<Status> rank0(const Launch& launch, int timeout_ms = 20000) {
  return std::async(std::launch::async,
                    [=] { return serve_unique_id(launch, some_id(), timeout_ms); });
}

// Opens a connection, as soon as somebody listens.
Socket connection(int port, const char* host = "127.0.0.1") {
  const auto to = addresses_without_lookup(host, port);
  std::string why;
  for (const Deadline until = soon(); std::chrono::steady_clock::now() < until;) {
    Socket out = connect_to(to, until, why);
    if (out.open()) return out;
    std::this_thread::sleep_for(milliseconds(5));
  }
  FAIL("nobody listens: " << why);
  return {};
}

// A rank that stops after some of its messages: 0 says nothing, 1 greets, 2 proves and has the id.
class HalfRank {
 public:
  HalfRank(const Launch& launch, int messages)
      : talk_(launch, Nonce{}), socket_(connection(launch.port)) {
    std::string bytes;
    for (int i = 0; i < messages; ++i) {
      REQUIRE(socket_.send_all(talk_.output, soon()));
      talk_.output.clear();
      REQUIRE(socket_.receive_all(bytes, talk_.wanted(), soon()));
      talk_.take(bytes);
    }
  }
  const RankTalk& talk() const { return talk_; }

 private:
  RankTalk talk_;
  Socket socket_;
};

}  // namespace

// Stands before the system's, for the whole test program.
extern "C" int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
  using Function = int (*)(int, sockaddr*, socklen_t*, int);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "accept4"));
  if (!descriptors_are_short) return real(fd, address, size, flags);
  ++refused_accepts;
  errno = EMFILE;
  return -1;
}

TEST_CASE("host: connections that say nothing hold nobody up, however many") {
  for (const int count : {8, 30, 300}) {
    CAPTURE(count);
    const int port = free_port();
    auto host = rank0(at_port(0, 2, port), 8000);
    std::vector<Socket> idle;
    while (static_cast<int>(idle.size()) < count) idle.push_back(connection(port));
    check_met(meet({at_port(1, 2, port)}, 8000));
    const Status status = host.get();
    CHECK_MESSAGE(status.ok(), status.text());
  }
}

TEST_CASE("host: many ranks at once, more than are served side by side") {
  const int port = free_port(), world = 200;
  std::vector<Launch> launches;
  for (int rank = 0; rank < world; ++rank) launches.push_back(at_port(rank, world, port, "s"));
  check_met(meet(launches, 30000));
}

TEST_CASE("host: a rank that broke off comes again, or another process in its place") {
  for (const int messages : {0, 1, 2}) {
    for (const bool lives : {false, true}) {
      CAPTURE(messages);
      CAPTURE(lives);
      const int port = free_port();
      auto host = rank0(at_port(0, 2, port, "key"));
      auto first = std::make_unique<HalfRank>(at_port(1, 2, port, "key"), messages);
      CHECK(first->talk().has_id() == (messages == 2));
      if (!lives) first.reset();
      check_met(meet({at_port(1, 2, port, "key")}, 20000));
      CHECK(host.get().ok());
    }
  }
}

TEST_CASE("host: a rank that was served and started again is served again") {
  const int port = free_port();
  auto host = rank0(at_port(0, 3, port));
  check_met(meet({at_port(1, 3, port)}, 20000));
  check_met(meet({at_port(1, 3, port)}, 20000));
  CHECK(host.wait_for(milliseconds(0)) == std::future_status::timeout);
  check_met(meet({at_port(2, 3, port)}, 20000));
  CHECK(host.get().ok());
}

TEST_CASE("host: while one connection is between the id and its confirmation, another waits") {
  const int port = free_port();
  auto host = rank0(at_port(0, 2, port));
  const HalfRank first(at_port(1, 2, port), 2);
  const HalfRank second(at_port(1, 2, port), 2);
  CHECK(first.talk().has_id());
  CHECK_FALSE(second.talk().has_id());
  CHECK(second.talk().why() == "another process is served there as rank 1");
  check_met(meet({at_port(1, 2, port)}, 20000));
  CHECK(host.get().ok());
}

TEST_CASE("host: only who knows the secret meets") {
  struct Case {
    const char *host, *rank;
    bool meets;
    const char* says;  // on the rank's side
  };
  const Case cases[] = {
      {"", "", true, ""},
      {"key", "key", true, ""},
      {"key", "", false, "wants a LATHE_RENDEZVOUS_SECRET, which is not set"},
      {"", "key", false, "another LATHE_RENDEZVOUS_SECRET, or none"},
      {"key", "kez", false, "another LATHE_RENDEZVOUS_SECRET, or none"},
  };
  for (const Case& each : cases) {
    const int port = free_port(), timeout_ms = each.meets ? 20000 : 500;
    const auto met =
        meet({at_port(0, 2, port, each.host), at_port(1, 2, port, each.rank)}, timeout_ms);
    if (each.meets) {
      check_met(met);
      continue;
    }
    CHECK(met[0].status.code() == Code::timeout);
    CHECK_MESSAGE(says(met[0].status, "a rank 1 with another LATHE_RENDEZVOUS_SECRET"),
                  met[0].status.text());
    CHECK(met[1].status.code() == Code::timeout);
    CHECK_MESSAGE(says(met[1].status, each.says), met[1].status.text());
    CHECK(same(met[1].id, UniqueId{}));
  }
}

TEST_CASE("host: without descriptors it waits for some, and does not spin") {
  const int port = free_port();
  descriptors_are_short = true;
  refused_accepts = 0;
  auto host = rank0(at_port(0, 2, port));
  auto rank = std::async(std::launch::async, [port] { return meet({at_port(1, 2, port)}, 20000); });
  std::this_thread::sleep_for(milliseconds(600));
  descriptors_are_short = false;
  check_met(rank.get());
  CHECK(host.get().ok());
  CHECK(refused_accepts > 0);
  CHECK(refused_accepts < 100);  // a loop without pauses makes hundreds of thousands
}

TEST_CASE("host: it listens where it was told, or everywhere if that is no address of its own") {
  struct Case {
    const char *address, *from;
    bool reached;
  };
  const Case cases[] = {
      {"127.0.0.1", "127.0.0.1", true},     {"127.0.0.1", "127.0.0.2", false},
      {"127.0.0.2", "127.0.0.2", true},     {"localhost", "127.0.0.1", true},
      {"localhost", "127.0.0.2", false},    {"192.0.2.1", "127.0.0.2", true},
      {"node0.invalid", "127.0.0.2", true},
  };
  for (const Case& each : cases) {
    CAPTURE(each.address);
    CAPTURE(each.from);
    const int port = free_port();
    Launch launch = at_port(0, 2, port);
    launch.address = each.address;
    const auto listener = listen_on(launch.address, launch.port, soon());
    REQUIRE_MESSAGE(listener.ok(), listener.status().text());
    std::string why;
    const Socket peer = connect_to(addresses_without_lookup(each.from, port), soon(), why);
    CHECK_MESSAGE(peer.open() == each.reached, why);
  }
}
