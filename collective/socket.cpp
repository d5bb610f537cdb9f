// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Non-blocking sockets under poll.
#include "collective/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int ms = static_cast<int>(std::clamp<long long>(left.count(), 0, 1 << 30));
    pollfd item{fd, events, 0};
    const int ready = poll(&item, 1, ms);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// Transfers all of it; `transfer` is send or recv of what is left.
template <typename Transfer>
bool all(int fd, short events, size_t bytes, Deadline deadline, Transfer transfer) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t moved = transfer(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0) {
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, events, deadline)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

Socket bound(int port, int& error) {
  // IPv6 that also takes IPv4, else IPv4 where the kernel has no IPv6.
  Socket six(socket(AF_INET6, SOCK_STREAM | kFlags, 0));
  const int on = 1, off = 0;
  if (six.open()) {
    setsockopt(six.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(six.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    if (bind(six.fd(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0) return six;
    error = errno;
    if (error == EADDRINUSE) return {};
  }
  Socket four(socket(AF_INET, SOCK_STREAM | kFlags, 0));
  if (four.open()) {
    setsockopt(four.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    any.sin_port = htons(static_cast<uint16_t>(port));
    if (bind(four.fd(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0) return four;
  }
  error = errno;
  return {};
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool Socket::send_all(const void* data, size_t bytes, Deadline deadline) const {
  const auto* from = static_cast<const char*>(data);
  return all(fd_, POLLOUT, bytes, deadline,
             [&](size_t done) { return send(fd_, from + done, bytes - done, MSG_NOSIGNAL); });
}

bool Socket::receive_all(void* data, size_t bytes, Deadline deadline) const {
  auto* to = static_cast<char*>(data);
  return all(fd_, POLLIN, bytes, deadline,
             [&](size_t done) { return recv(fd_, to + done, bytes - done, 0); });
}

Result<Socket> listen_on(int port, Deadline deadline) {
  for (;;) {
    int error = 0;
    Socket out = bound(port, error);
    if (out.open() && listen(out.fd(), SOMAXCONN) == 0) return out;
    if (out.open()) error = errno;
    const std::string what = text("cannot listen on port ", port, ": ", std::strerror(error));
    if (error != EADDRINUSE) return Status(Code::internal, what);
    if (std::chrono::steady_clock::now() >= deadline) return Status(Code::timeout, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Socket accept_from(const Socket& listener, Deadline deadline) {
  while (wait_for(listener.fd(), POLLIN, deadline)) {
    Socket out(accept4(listener.fd(), nullptr, nullptr, kFlags));
    if (out.open()) return out;
  }
  return {};
}

Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) {
    why = gai_strerror(failed);
    return {};
  }
  Socket out;
  for (const addrinfo* at = found; at != nullptr && !out.open(); at = at->ai_next) {
    Socket attempt(socket(at->ai_family, SOCK_STREAM | kFlags, at->ai_protocol));
    if (!attempt.open()) continue;
    int error = connect(attempt.fd(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      error = ETIMEDOUT;
      socklen_t size = sizeof error;
      if (wait_for(attempt.fd(), POLLOUT, deadline)) {
        getsockopt(attempt.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      }
    }
    if (error == 0) {
      out = std::move(attempt);
    } else {
      why = std::strerror(error);
    }
  }
  freeaddrinfo(found);
  return out;
}

}  // namespace lathe
