// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// TCP with a deadline on every call: just enough to hand out a unique id.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "codegen/base/status.h"

namespace lathe {

using Deadline = std::chrono::steady_clock::time_point;

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

  // True once all bytes went through before the deadline.
  bool send_all(const void* data, size_t bytes, Deadline deadline) const;
  bool receive_all(void* data, size_t bytes, Deadline deadline) const;

 private:
  int fd_ = -1;
};

// Listens on every interface. TIMEOUT if the port is taken until the deadline (a previous run may
// be about to leave it), INTERNAL for what waiting cannot mend.
Result<Socket> listen_on(int port, Deadline deadline);
// The next connection; a closed Socket at the deadline.
Socket accept_from(const Socket& listener, Deadline deadline);
// One attempt. A closed Socket and `why` if nobody answers.
Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& why);

}  // namespace lathe
