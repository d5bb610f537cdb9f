// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One thread serves all connections under poll. Each connection has its own deadline, so silent
// connections delay nobody.
//
// A rank whose connection breaks before it has confirmed the id comes again, as does a process that
// was started in place of a dead one: whoever proves to be rank r gets the id, at any time. Only
// while one live connection is between the id and its confirmation another one of the same rank is
// told to come again later.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "codegen/base/log.h"
#include "codegen/base/text.h"
#include "collective/rendezvous/rendezvous.h"
#include "collective/rendezvous/rendezvous_talk.h"
#include "collective/rendezvous/socket.h"

namespace lathe {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// kPatience limits how long a connection may take from its first byte to its last.
constexpr milliseconds kPatience(2000);
// At most kMostPeers connections are served at once; the others wait in the kernel's queue. Each
// takes a descriptor of the process.
constexpr size_t kMostPeers = 128;
// No connection is accepted for kAcceptPause after the system refused one, for example for lack of
// descriptors.
constexpr milliseconds kAcceptPause(50);

struct Peer {
  Peer(Socket connection, Deadline until, HostTalk conversation)
      : socket(std::move(connection)), deadline(until), talk(std::move(conversation)) {}
  Socket socket;
  Deadline deadline;
  HostTalk talk;
  bool spoke = false;
};

class Host {
 public:
  Host(const Launch& launch, const UniqueId& id, int timeout_ms)
      : launch_(launch), id_(id), timeout_ms_(timeout_ms) {}

  Status serve();

 private:
  void wait(const Socket& listener) const;
  Status accept_all(const Socket& listener);
  Status add(Socket socket);
  bool drop_oldest();
  void move_bytes();
  bool goes_on(Peer& peer);
  void note(const Peer& peer);
  bool being_served(int rank) const;
  Status missing_ranks() const;

  const Launch& launch_;
  const UniqueId& id_;
  const int timeout_ms_;
  const Deadline deadline_ = Clock::now() + milliseconds(timeout_ms_);
  Deadline accept_from_ = Deadline::min();
  std::vector<std::unique_ptr<Peer>> peers_;  // the oldest first
  std::vector<bool> served_ = std::vector<bool>(static_cast<size_t>(launch_.world));  // by rank
  int left_ = launch_.world - 1;  // how many ranks are not served
  std::string refused_;
};

Status Host::serve() {
  LATHE_ASSIGN(const Listener listener, listen_on(launch_.address, launch_.port, deadline_));
  log_message(
      LogLevel::debug,
      text("rank 0 listens on port ", launch_.port, " of ",
           listener.everywhere
               ? "every interface (MASTER_ADDR is a name, or no address of this machine)"
               : launch_.address,
           launch_.secret.empty() ? " and believes everybody: LATHE_RENDEZVOUS_SECRET is not set"
                                  : " for ranks that know LATHE_RENDEZVOUS_SECRET"));
  while (left_ > 0 && Clock::now() < deadline_) {
    wait(listener.socket);
    LATHE_TRY(accept_all(listener.socket));
    move_bytes();
  }
  return left_ == 0 ? Status() : missing_ranks();
}

// Waits until a connection can be read or written, or a deadline passes.
void Host::wait(const Socket& listener) const {
  Deadline until = deadline_;
  std::vector<pollfd> items;
  if (Clock::now() >= accept_from_) {
    items.push_back({listener.fd(), POLLIN, 0});
  } else {
    until = std::min(until, accept_from_);
  }
  for (const auto& peer : peers_) {
    const short events = peer->talk.output.empty() ? POLLIN : POLLIN | POLLOUT;
    items.push_back({peer->socket.fd(), events, 0});
    until = std::min(until, peer->deadline);
  }
  (void)poll(items.data(), items.size(), poll_ms(until));
}

Status Host::accept_all(const Socket& listener) {
  for (size_t count = 0; count < kMostPeers && Clock::now() >= accept_from_; ++count) {
    int error = 0;
    Socket socket = accept_now(listener, error);
    if (socket.open()) {
      LATHE_TRY(add(std::move(socket)));
    } else if (error == EAGAIN || error == EWOULDBLOCK) {
      break;
    } else if (error != EINTR && error != ECONNABORTED && !drop_oldest()) {
      // Descriptors or memory are short; poll would say at once that somebody waits.
      accept_from_ = Clock::now() + kAcceptPause;
    }
  }
  return {};
}

Status Host::add(Socket socket) {
  LATHE_ASSIGN(const Nonce nonce, draw_nonce());
  auto peer = std::make_unique<Peer>(
      std::move(socket), std::min(deadline_, Clock::now() + kPatience),
      HostTalk(launch_, id_, nonce, [this](int rank) { return being_served(rank); }));
  // A rank greets at once, so that most connections have said something before they are counted.
  if (!goes_on(*peer)) {
    note(*peer);
    return {};
  }
  peers_.push_back(std::move(peer));
  // Where every connection is one of a rank, none is given up and the next ones wait.
  if (peers_.size() > kMostPeers && !drop_oldest()) accept_from_ = Clock::now() + kAcceptPause;
  return {};
}

// Gives up the oldest connection that has not greeted, else the oldest that was not welcomed.
bool Host::drop_oldest() {
  const auto drop = [&](auto matches) {
    const auto found = std::find_if(peers_.begin(), peers_.end(), matches);
    if (found == peers_.end()) return false;
    note(**found);
    peers_.erase(found);
    return true;
  };
  return drop([](const auto& peer) { return !peer->talk.greeted(); }) ||
         drop([](const auto& peer) { return peer->talk.welcomed() < 0; });
}

void Host::move_bytes() {
  for (size_t i = 0; i < peers_.size();) {
    if (goes_on(*peers_[i])) {
      ++i;
    } else {
      note(*peers_[i]);
      peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

// Receives and sends all that it can without waiting. Returns false once the connection is not
// needed any more.
bool Host::goes_on(Peer& peer) {
  for (;;) {
    if (!peer.socket.send_some(peer.talk.output)) return false;
    if (peer.talk.over()) return !peer.talk.output.empty() && Clock::now() < peer.deadline;
    std::string bytes;
    if (!peer.socket.receive_some(bytes, peer.talk.wanted())) return false;
    if (bytes.empty()) return Clock::now() < peer.deadline;
    peer.spoke = true;
    peer.talk.take(bytes);
  }
}

// Records how far a connection has come.
void Host::note(const Peer& peer) {
  if (peer.talk.confirmed()) {
    const auto rank = static_cast<size_t>(peer.talk.welcomed());
    if (!served_[rank]) --left_;
    served_[rank] = true;
  } else if (!peer.talk.refused().empty()) {
    refused_ = peer.talk.refused();
  } else if (!peer.talk.greeted() && refused_.empty()) {
    refused_ =
        peer.spoke ? "a connection that is not from lathe" : "a connection that said nothing";
  }
}

// Returns whether a live connection is about to confirm the id for `rank`. Dead connections do not
// count: the rank may have been started again.
bool Host::being_served(int rank) const {
  for (const auto& peer : peers_) {
    if (peer->talk.welcomed() != rank) continue;
    pollfd item{peer->socket.fd(), POLLIN, 0};
    // Whatever there is to read now is the confirmation or the end.
    if (poll(&item, 1, 0) == 0 && Clock::now() < peer->deadline) return true;
  }
  return false;
}

Status Host::missing_ranks() const {
  std::string missing;
  for (int rank = 1; rank < launch_.world; ++rank) {
    if (!served_[static_cast<size_t>(rank)]) missing += text(missing.empty() ? "" : ", ", rank);
  }
  std::string out = text("rank 0 waited ", timeout_ms_, " ms on port ", launch_.port, " for rank ",
                         missing, " of ", launch_.world);
  if (!refused_.empty()) out += text("; refused was ", refused_);
  return {Code::timeout, out};
}

}  // namespace

Status serve_unique_id(const Launch& launch, const UniqueId& id, int timeout_ms) {
  return Host(launch, id, timeout_ms).serve();
}

}  // namespace lathe
