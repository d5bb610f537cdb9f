// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover addresses that swallow packets beside one that answers.
#include "collective/rendezvous/socket.h"

#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;
using std::chrono::milliseconds;

namespace {

// Listens but accepts nothing more: its queue is full, so that the kernel drops each new connection
// without a word.
class Hole {
 public:
  Hole() : listener_(socket(AF_INET, SOCK_STREAM, 0)), port_(bind_to(listener_.fd(), kHost)) {
    REQUIRE(listen(listener_.fd(), 0) == 0);
    const sockaddr_in to = ipv4(kHost, port_);
    for (int i = 0; i < 4; ++i) {
      queue_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
      (void)!connect(queue_.back().fd(), reinterpret_cast<const sockaddr*>(&to), sizeof to);
    }
  }
  Address address() const { return addresses_without_lookup(kHost, port_).front(); }

 private:
  static constexpr const char* kHost = "127.0.0.2";
  Socket listener_;
  int port_;
  std::vector<Socket> queue_;
};

Deadline in_ms(int ms) { return std::chrono::steady_clock::now() + milliseconds(ms); }

}  // namespace

TEST_CASE("socket: an address that swallows packets does not use up the time of the next one") {
  const Hole hole;
  const Socket good(socket(AF_INET, SOCK_STREAM, 0));
  const int port = bind_to(good.fd(), "127.0.0.1");
  REQUIRE(listen(good.fd(), 8) == 0);
  const Address answers = addresses_without_lookup("127.0.0.1", port).front();
  const Address refuses = addresses_without_lookup("127.0.0.1", free_port()).front();
  const std::vector<std::vector<Address>> cases = {
      {hole.address(), answers}, {answers, hole.address()}, {refuses, hole.address(), answers}};
  for (const auto& addresses : cases) {
    std::string why;
    const Deadline deadline = in_ms(5000);
    const Socket made = connect_to(addresses, deadline, why);
    REQUIRE_MESSAGE(made.open(), why);
    CHECK(std::chrono::steady_clock::now() < deadline);
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    REQUIRE(getpeername(made.fd(), reinterpret_cast<sockaddr*>(&peer), &size) == 0);
    CHECK(ntohs(peer.sin_port) == port);
  }
}

TEST_CASE("socket: where no address answers, the reason is told") {
  const Hole hole;
  const Address refuses = addresses_without_lookup("127.0.0.1", free_port()).front();
  std::string why;
  CHECK_FALSE(connect_to({hole.address()}, in_ms(50), why).open());
  CHECK(why == "Connection timed out");
  CHECK_FALSE(connect_to({refuses, refuses}, in_ms(5000), why).open());
  CHECK(why == "Connection refused");
}
