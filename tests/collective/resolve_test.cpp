// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover names, numbers and a name server that does not answer.
#include "collective/resolve.h"

#include <dlfcn.h>
#include <netdb.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>

#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;
using std::chrono::milliseconds;

namespace {

// A name server of the test's own: silent.test is answered once it may speak.
struct NameServer {
  std::mutex mutex;
  std::condition_variable changed;
  bool silent = false;
  std::atomic<int> asked{0};

  void set_silent(bool value) {
    const std::lock_guard lock(mutex);
    silent = value;
    changed.notify_all();
  }
};

// Never destroyed: a thread that waits for an answer may outlive the test.
NameServer& server() {
  static auto* const out = new NameServer;
  return *out;
}

Deadline in_ms(int ms) { return std::chrono::steady_clock::now() + milliseconds(ms); }

}  // namespace

// Stands before the system's, for the whole test program.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** out) {
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string name = node == nullptr ? "" : node;
  if ((hints->ai_flags & AI_NUMERICHOST) != 0 || !name.ends_with(".test")) {
    return real(node, service, hints, out);
  }
  ++server().asked;
  if (name != "silent.test") return EAI_NONAME;
  std::unique_lock lock(server().mutex);
  server().changed.wait(lock, [] { return !server().silent; });
  return real("127.0.0.1", service, hints, out);
}

TEST_CASE("resolve: numbers and localhost need no lookup, names do") {
  struct Case {
    const char* host;
    size_t count;
    int family;
  };
  const Case cases[] = {{"127.0.0.1", 1, AF_INET}, {"::1", 1, AF_INET6}, {"10.1.2.3", 1, AF_INET},
                        {"localhost", 2, AF_INET}, {"node0", 0, 0},      {"", 0, 0}};
  for (const Case& each : cases) {
    CAPTURE(each.host);
    const auto found = addresses_without_lookup(each.host, 1234);
    REQUIRE(found.size() == each.count);
    if (each.count == 0) continue;
    CHECK(found[0].get()->sa_family == each.family);
    std::string why;
    CHECK(NameLookup(each.host, 1234).addresses(in_ms(20000), why).size() == each.count);
  }
}

TEST_CASE("resolve: a name server that does not answer holds a rank no longer than its timeout") {
  server().set_silent(true);
  const int asked = server().asked;
  Launch launch = at_port(1, 2, 1234);
  launch.address = "silent.test";
  auto rank = std::async(std::launch::async, [&] { return meet({launch}, 300)[0].status; });
  const bool in_time = rank.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  CHECK(in_time);
  server().set_silent(false);
  const Status status = rank.get();
  CHECK(status.code() == Code::timeout);
  CHECK_MESSAGE(says(status, "the name silent.test is still being looked up"), status.text());
  CHECK(server().asked == asked + 1);
}

TEST_CASE("resolve: an answer that comes late is taken by the next call, and then asked for anew") {
  server().set_silent(true);
  const int asked = server().asked;
  NameLookup lookup("silent.test", 80);
  std::string why;
  CHECK(lookup.addresses(in_ms(20), why).empty());
  CHECK(lookup.addresses(in_ms(20), why).empty());
  server().set_silent(false);
  CHECK(lookup.addresses(in_ms(20000), why).size() == 1);
  CHECK(server().asked == asked + 1);
  CHECK(lookup.addresses(in_ms(20000), why).size() == 1);
  CHECK(server().asked == asked + 2);
}

TEST_CASE("resolve: a name that does not exist is told") {
  std::string why;
  CHECK(NameLookup("nobody.test", 80).addresses(in_ms(20000), why).empty());
  CHECK(why == gai_strerror(EAI_NONAME));
}
