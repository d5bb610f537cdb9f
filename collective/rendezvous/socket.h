// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Wraps TCP with a deadline on every call: just enough to hand out a unique id.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/base/status.h"
#include "collective/resolve.h"

namespace lathe {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

  // Returns true if all bytes went through before the deadline.
  bool send_all(std::string_view bytes, Deadline deadline) const;
  bool receive_all(std::string& out, size_t bytes, Deadline deadline) const;

  // Sends or receives as much as it can without waiting: removes sent bytes from `bytes`, or adds
  // at most `most` bytes to `out`. Returns false if the connection has ended.
  bool send_some(std::string& bytes) const;
  bool receive_some(std::string& out, size_t most) const;

 private:
  int fd_ = -1;
};

struct Listener {
  Socket socket;
  bool everywhere = false;  // on every interface, not on one address
};

// Listens on the address `host` if that is a number (or "localhost") and an address of this
// machine. Otherwise it listens on every interface, because a name, or an address that a router
// translates, does not tell by which of this machine's addresses the others reach it. Returns
// TIMEOUT if the port is taken until the deadline (a previous run may be about to leave it),
// INTERNAL for errors that waiting cannot cure.
Result<Listener> listen_on(const std::string& host, int port, Deadline deadline);

// Accepts a waiting connection. If it cannot, returns a closed Socket and sets `error` to the
// errno; EAGAIN: no connection is waiting.
Socket accept_now(const Socket& listener, int& error);

// Tries all addresses side by side and takes the first that answers. If none answers before the
// deadline, returns a closed Socket and sets `why`.
Socket connect_to(const std::vector<Address>& addresses, Deadline deadline, std::string& why);

// Returns the milliseconds until `when`, for poll; never negative.
int poll_ms(Deadline when);

}  // namespace lathe
