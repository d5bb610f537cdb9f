// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Looks up the addresses of a host, with a deadline.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <future>
#include <string>
#include <vector>

namespace lathe {

using Deadline = std::chrono::steady_clock::time_point;

struct Address {
  sockaddr_storage bytes;
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
};

// Returns the addresses of a number, such as 10.0.0.1 or ::1, and of "localhost", which is always
// this machine's loopback. The result is empty for every other name: no file is read and no server
// asked.
std::vector<Address> addresses_without_lookup(const std::string& host, int port);

// Looks up the addresses of a host anew at each call of addresses(). getaddrinfo has no deadline,
// so a separate thread looks up the name. That thread outlives this object if the name server does
// not answer; the next call then waits for the same answer.
class NameLookup {
 public:
  NameLookup(std::string host, int port) : host_(std::move(host)), port_(port) {}
  // The result is empty, with the reason in `why`, if there is no address before the deadline.
  std::vector<Address> addresses(Deadline deadline, std::string& why);

 private:
  struct Answer {
    int failed = 0;
    std::vector<Address> found;
  };
  std::string host_;
  int port_;
  std::future<Answer> pending_;  // not valid: no thread is looking
};

}  // namespace lathe
