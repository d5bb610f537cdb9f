// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Looks up names.
#include "collective/resolve.h"

#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
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
  if (!pending_.valid()) {
    std::packaged_task<Answer()> look([host = host_, port = port_] {
      Answer out;
      out.failed = ask(host, port, 0, out.found);
      return out;
    });
    pending_ = look.get_future();
    std::thread(std::move(look)).detach();
  }
  if (pending_.wait_until(deadline) != std::future_status::ready) {
    why = "the name " + host_ + " is still being looked up";
    return {};
  }
  Answer answer = pending_.get();
  if (answer.failed != 0) why = gai_strerror(answer.failed);
  return std::move(answer.found);
}

}  // namespace lathe
