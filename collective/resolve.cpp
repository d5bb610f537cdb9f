// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Looks up names.
#include "collective/resolve.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

namespace lathe {
namespace {

// All addresses are tried at once. A name with more addresses than this is not a single host.
constexpr size_t kMostAddresses = 16;

// Returns the error of getaddrinfo, 0 for none.
int ask(const std::string& host, int port, int flags, std::vector<Address>& out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0) return failed;
  for (const addrinfo* at = found; at != nullptr && out.size() < kMostAddresses; at = at->ai_next) {
    Address address;
    if (at->ai_addrlen > sizeof address.bytes) continue;
    std::memcpy(&address.bytes, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
    out.push_back(address);
  }
  freeaddrinfo(found);
  return 0;
}

}  // namespace

// Holds the thread's result. The thread and the waiting callers share ownership.
struct NameLookup::Pending {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  int failed = 0;
  std::vector<Address> found;
};

std::vector<Address> addresses_without_lookup(const std::string& host, int port) {
  std::vector<Address> out;
  if (host == "localhost") {
    (void)ask("127.0.0.1", port, AI_NUMERICHOST, out);
    (void)ask("::1", port, AI_NUMERICHOST, out);
  } else {
    (void)ask(host, port, AI_NUMERICHOST, out);
  }
  return out;
}

std::vector<Address> NameLookup::addresses(Deadline deadline, std::string& why) {
  std::vector<Address> known = addresses_without_lookup(host_, port_);
  if (!known.empty()) return known;
  if (pending_ == nullptr) {
    pending_ = std::make_shared<Pending>();
    std::thread([pending = pending_, host = host_, port = port_] {
      std::vector<Address> found;
      const int failed = ask(host, port, 0, found);
      const std::lock_guard lock(pending->mutex);
      pending->found = std::move(found);
      pending->failed = failed;
      pending->done = true;
      pending->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(pending_->mutex);
  if (!pending_->changed.wait_until(lock, deadline, [&] { return pending_->done; })) {
    why = "the name " + host_ + " is still being looked up";
    return {};
  }
  if (pending_->failed != 0) why = gai_strerror(pending_->failed);
  std::vector<Address> out = std::move(pending_->found);
  lock.unlock();
  pending_ = nullptr;
  return out;
}

}  // namespace lathe
