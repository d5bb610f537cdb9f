// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Uses non-blocking sockets under poll.
#include "collective/rendezvous/socket.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "cache/directory.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd item{fd, events, 0};
    const int ready = poll(&item, 1, poll_ms(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool not_now() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

// Returns a socket that is bound to the first address that can be bound, or a closed Socket and an
// errno. A port that is taken ends the search.
Socket bound(const std::vector<Address>& addresses, int& error) {
  const int on = 1, off = 0;
  for (const Address& address : addresses) {
    Socket out(socket(address.bytes.ss_family, SOCK_STREAM | kFlags, 0));
    if (out.open()) {
      setsockopt(out.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (address.bytes.ss_family == AF_INET6) {
        setsockopt(out.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
      }
      if (bind(out.fd(), address.get(), address.size) == 0 && listen(out.fd(), SOMAXCONN) == 0) {
        return out;
      }
    }
    error = errno;
    if (error == EADDRINUSE) break;
  }
  return {};
}

// Returns IPv6 that also takes IPv4, then IPv4 for kernels without IPv6.
std::vector<Address> every_interface(int port) {
  std::vector<Address> out = addresses_without_lookup("::", port);
  for (const Address& address : addresses_without_lookup("0.0.0.0", port)) out.push_back(address);
  return out;
}

// Returns the errno of a connection attempt that has ended.
int connection_error(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

int poll_ms(Deadline when) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(when - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<long long>(left.count(), 0, 1 << 30));
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

bool Socket::send_some(std::string& bytes) const {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return not_now();
    bytes.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

bool Socket::receive_some(std::string& out, size_t most) const {
  const size_t before = out.size();
  out.resize(before + most);
  const ssize_t got = recv(fd_, out.data() + before, most, 0);
  const bool goes_on = got > 0 || (got < 0 && not_now());
  out.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return goes_on;
}

bool Socket::send_all(std::string_view bytes, Deadline deadline) const {
  std::string left(bytes);
  while (send_some(left)) {
    if (left.empty()) return true;
    if (!wait_for(fd_, POLLOUT, deadline)) return false;
  }
  return false;
}

bool Socket::receive_all(std::string& out, size_t bytes, Deadline deadline) const {
  out.clear();
  while (out.size() < bytes) {
    const size_t before = out.size();
    if (!receive_some(out, bytes - before)) return false;
    if (out.size() == before && !wait_for(fd_, POLLIN, deadline)) return false;
  }
  return true;
}

Result<Listener> listen_on(const std::string& host, int port, Deadline deadline) {
  const std::vector<Address> addresses = addresses_without_lookup(host, port);
  for (;;) {
    int error = EADDRNOTAVAIL;
    Listener out{bound(addresses, error)};
    out.everywhere = !out.socket.open() && error != EADDRINUSE;
    if (out.everywhere) out.socket = bound(every_interface(port), error);
    if (out.socket.open()) return out;
    const std::string failed = text("cannot listen on port ", port, ": ", reason(error));
    if (error != EADDRINUSE) return Status(Code::internal, failed);
    if (std::chrono::steady_clock::now() >= deadline) return Status(Code::timeout, failed);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Socket accept_now(const Socket& listener, int& error) {
  Socket out(accept4(listener.fd(), nullptr, nullptr, kFlags));
  error = out.open() ? 0 : errno;
  return out;
}

Socket connect_to(const std::vector<Address>& addresses, Deadline deadline, std::string& why) {
  std::vector<Socket> attempts;
  for (const Address& address : addresses) {
    Socket attempt(socket(address.bytes.ss_family, SOCK_STREAM | kFlags, 0));
    if (attempt.open() && connect(attempt.fd(), address.get(), address.size) == 0) return attempt;
    if (errno == EINPROGRESS) {
      attempts.push_back(std::move(attempt));
    } else {
      why = reason(errno);
    }
  }
  while (!attempts.empty()) {
    std::vector<pollfd> items;
    for (const Socket& attempt : attempts) items.push_back({attempt.fd(), POLLOUT, 0});
    const int ready = poll(items.data(), items.size(), poll_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      why = reason(ready == 0 ? ETIMEDOUT : errno);
      break;
    }
    for (size_t i = items.size(); i-- > 0;) {
      if (items[i].revents == 0) continue;
      const int error = connection_error(attempts[i].fd());
      if (error == 0) return std::move(attempts[i]);
      why = reason(error);
      attempts.erase(attempts.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return {};
}

}  // namespace lathe
