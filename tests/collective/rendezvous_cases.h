// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks are threads that meet on the loopback interface or in a folder.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "collective/rendezvous/nonce.h"
#include "collective/rendezvous/rendezvous.h"

namespace rendezvous {

inline lathe::UniqueId some_id(int seed = 1) {
  lathe::UniqueId out;
  for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; ++i) out.internal[i] = static_cast<char>(3 * i + seed);
  return out;
}

inline lathe::Nonce nonce(char value) {
  lathe::Nonce out;
  out.fill(value);
  return out;
}

inline bool same(const lathe::UniqueId& a, const lathe::UniqueId& b) {
  return std::memcmp(a.internal, b.internal, sizeof a.internal) == 0;
}

inline bool says(const lathe::Status& status, const std::string& words) {
  return status.text().find(words) != std::string::npos;
}

inline sockaddr_in ipv4(const char* host, int port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<uint16_t>(port));
  REQUIRE(inet_pton(AF_INET, host, &out.sin_addr) == 1);
  return out;
}

// Binds `fd` to a port of `host`; returns the port (0 asks for any that is free).
inline int bind_to(int fd, const char* host, int port = 0) {
  sockaddr_in at = ipv4(host, port);
  socklen_t size = sizeof at;
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&at), size) == 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
  return ntohs(at.sin_port);
}

// Returns a port that was free a moment ago.
inline int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int port = bind_to(fd, "127.0.0.1");
  close(fd);
  return port;
}

inline lathe::Launch at_port(int rank, int world, int port, const std::string& secret = "") {
  lathe::Launch out;
  out.launcher = "torchrun";
  out.rank = rank;
  out.world = world;
  out.address = "127.0.0.1";
  out.port = port;
  out.run = "/run";
  out.secret = secret;
  return out;
}

struct Met {
  lathe::Status status;
  lathe::UniqueId id{};
};

// Starts all launches, each some milliseconds after the one before; rank 0 has some_id(seed).
inline std::vector<Met> meet(const std::vector<lathe::Launch>& launches, int timeout_ms,
                             int seed = 1, int apart_ms = 0) {
  std::vector<Met> out(launches.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < launches.size(); ++i) {
    threads.emplace_back([&, i] {
      std::this_thread::sleep_for(std::chrono::milliseconds(apart_ms * static_cast<int>(i)));
      if (launches[i].rank == 0) out[i].id = some_id(seed);
      out[i].status = lathe::share_unique_id(launches[i], out[i].id, timeout_ms);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

inline void check_met(const std::vector<Met>& all, int seed = 1) {
  for (const Met& met : all) {
    REQUIRE_MESSAGE(met.status.ok(), met.status.text());
    CHECK(same(met.id, some_id(seed)));
  }
}

// A Folder is removed with all that is in it.
class Folder {
 public:
  Folder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "lathe-rendezvous-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      out.push_back(entry.path().filename().string());
    }
    return out;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace rendezvous
