// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Addresses of a host, with a deadline.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace lathe {

using Deadline = std::chrono::steady_clock::time_point;

struct Address {
  sockaddr_storage bytes;
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

// The addresses of a number, such as 10.0.0.1 or ::1, and of "localhost", which is always this
// machine's loopback. Empty for every other name: no file is read and no server asked.
std::vector<Address> addresses_without_lookup(const std::string& host, int port);

// The addresses of a host, looked up when addresses() is called, every time anew. getaddrinfo knows
// no deadline, so a name is looked up by a thread of its own, which outlives this object if the
// name server does not answer; the next call then waits for the same answer.
class NameLookup {
 public:
  NameLookup(std::string host, int port) : host_(std::move(host)), port_(port) {}
  // Empty, with the reason in `why`, if there is none before the deadline.
  std::vector<Address> addresses(Deadline deadline, std::string& why);

 private:
  struct Pending;
  std::string host_;
  int port_;
  std::shared_ptr<Pending> pending_;  // null: no thread is looking
};

}  // namespace lathe
