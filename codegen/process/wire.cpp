// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/process/wire.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lathe {
namespace {

// More than this is no message of ours: the compile process has lost its mind to a hostile text.
constexpr uint64_t kMostBytes = uint64_t{1} << 30;

// Reads exactly `size` bytes.
Received receive_bytes(int socket, int64_t deadline_ms, char* to, size_t size) {
  while (size > 0) {
    if (deadline_ms >= 0) {
      const int64_t left = std::max<int64_t>(deadline_ms - milliseconds_now(), 0);
      struct pollfd ready = {socket, POLLIN, 0};
      const int count = poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 1'000'000)));
      if (count < 0 && errno != EINTR) return Received::ended;
      if (count == 0 && left == 0) return Received::late;
      if (count <= 0) continue;
    }
    const ssize_t got = recv(socket, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Received::ended;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return Received::message;
}

}  // namespace

int64_t MessageReader::number() {
  int64_t value = 0;
  good_ = good_ && left_.size() >= sizeof(value);
  if (!good_) return 0;
  std::memcpy(&value, left_.data(), sizeof(value));
  left_.remove_prefix(sizeof(value));
  return value;
}

std::string_view MessageReader::text() {
  const auto size = static_cast<uint64_t>(number());
  good_ = good_ && size <= left_.size();
  if (!good_) return {};
  const std::string_view value = left_.substr(0, size);
  left_.remove_prefix(size);
  return value;
}

bool send_bytes(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

Received receive_message(int socket, int64_t deadline_ms, std::string* message) {
  uint64_t size = 0;
  const Received first =
      receive_bytes(socket, deadline_ms, reinterpret_cast<char*>(&size), sizeof(size));
  if (first != Received::message) return first;
  if (size > kMostBytes) return Received::ended;
  message->resize(size);
  return receive_bytes(socket, deadline_ms, message->data(), size);
}

int64_t milliseconds_now() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace lathe
