// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the conversation without a network: who proves what to whom, byte for byte.
#include "collective/rendezvous/rendezvous_talk.h"

#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;

namespace {

// Carries bytes between both, a few at a time, until neither has any; returns all that went over.
std::string carry(HostTalk& host, RankTalk& rank, size_t piece) {
  std::string all;
  for (bool moved = true; moved;) {
    moved = false;
    for (const auto& [from, to] : {std::pair<Talk*, Talk*>(&rank, &host), {&host, &rank}}) {
      const std::string bytes = from->output.substr(0, piece);
      from->output.erase(0, piece);
      to->take(bytes);
      all += bytes;
      moved = moved || !bytes.empty();
    }
  }
  return all;
}

bool nobody(int) { return false; }

bool holds(const std::string& bytes, const UniqueId& id) {
  return bytes.find(std::string(id.internal, sizeof id.internal)) != std::string::npos;
}

}  // namespace

TEST_CASE("talk: verdicts, whatever the pieces in which bytes arrive") {
  const Launch host_launch = at_port(0, 4, 1, "key");
  struct Case {
    int rank, world;
    const char *run, *secret;
    bool taken;
    const char* refused;
    Code code;
    const char* why;  // of the status, or what is in the way
  };
  const Case cases[] = {
      {1, 4, "/run", "key", false, "", Code::ok, ""},
      {3, 4, "/run", "key", false, "", Code::ok, ""},
      {1, 4, "/run", "", false, "a rank 1 with another", Code::ok, "which is not set"},
      {1, 4, "/run", "Key", false, "a rank 1 with another", Code::ok, "or none"},
      {1, 4, "/old", "key", false, "rank 1 of another run", Code::ok, "belongs to another run"},
      {4, 5, "/run", "key", false, "a rank 4 of 5", Code::invalid_argument, "rank 0 of 4"},
      {0, 4, "/run", "key", false, "a second rank 0", Code::invalid_argument, "refuses rank 0"},
      {2, 4, "/run", "key", true, "a second rank 2 while", Code::ok, "is served there as rank 2"},
  };
  for (const Case& each : cases) {
    for (const size_t piece : {1, 7, 1000}) {
      CAPTURE(each.why);
      Launch launch = at_port(each.rank, each.world, 1, each.secret);
      launch.run = each.run;
      const UniqueId id = some_id();
      HostTalk host(host_launch, id, nonce('h'), [&](int) { return each.taken; });
      RankTalk rank(launch, nonce('r'));
      const std::string said = carry(host, rank, piece);
      CHECK(host.over());
      CHECK(rank.over());
      const bool welcome = *each.refused == '\0';
      CHECK(host.confirmed() == welcome);
      CHECK(host.welcomed() == (welcome ? each.rank : -1));
      CHECK(rank.has_id() == welcome);
      CHECK(holds(said, id) == welcome);
      CHECK(host.refused().find(each.refused) == 0);
      CHECK(rank.status().code() == each.code);
      const std::string& why = each.code == Code::ok ? rank.why() : rank.status().text();
      if (!welcome) CHECK_MESSAGE(why.find(each.why) != std::string::npos, why);
    }
  }
}

TEST_CASE("talk: the secret never travels, and what was recorded once is worth nothing later") {
  const Launch host_launch = at_port(0, 2, 1, "a secret of many letters");
  const Launch launch = at_port(1, 2, 1, host_launch.secret);
  const UniqueId id = some_id();
  HostTalk host(host_launch, id, nonce('h'), nobody);
  RankTalk rank(launch, nonce('r'));
  const std::string greeting = std::exchange(rank.output, "");
  host.take(greeting);
  const std::string challenge = std::exchange(host.output, "");
  rank.take(challenge);
  const std::string proof = rank.output;
  const std::string said = greeting + challenge + carry(host, rank, 1000);
  CHECK(rank.has_id());
  CHECK(said.find(host_launch.secret) == std::string::npos);

  HostTalk later(host_launch, id, nonce('i'), nobody);
  later.take(greeting + proof);
  CHECK(later.welcomed() == -1);
  CHECK_FALSE(holds(later.output, id));
}

TEST_CASE("talk: a host that does not know the secret cannot give an id, nor end a rank") {
  const Launch impostor = at_port(0, 2, 1, "guess"), launch = at_port(1, 2, 1, "key");
  Launch other_world = impostor;
  other_world.world = 9;
  for (const Launch& each : {impostor, other_world}) {
    for (const Verdict verdict : {Verdict::welcome, Verdict::other_world, Verdict::no_such_rank}) {
      RankTalk rank(launch, nonce('r'));
      const std::string greeting = rank.output, challenge = encode_challenge(nonce('x'));
      rank.take(challenge);
      Reply reply;
      reply.verdict = verdict;
      reply.world = static_cast<uint32_t>(each.world);
      reply.id = some_id();
      const std::string bytes = encode(reply);
      const Sha256Digest code = host_code(each.secret, greeting, challenge, bytes);
      rank.take(bytes + std::string(bytes_of(code)));
      CHECK(rank.over());
      CHECK_FALSE(rank.has_id());
      CHECK(rank.status().ok());
      CHECK(rank.why() == "rank 0 there has another LATHE_RENDEZVOUS_SECRET, or none");
    }
  }
}

TEST_CASE("talk: a damaged reply is not believed") {
  const Launch host_launch = at_port(0, 2, 1), launch = at_port(1, 2, 1);
  for (size_t at = 0; at < kReplyBytes + kCodeBytes; ++at) {
    const UniqueId id = some_id();
    HostTalk host(host_launch, id, nonce('h'), nobody);
    RankTalk rank(launch, nonce('r'));
    host.take(rank.output);
    rank.output.clear();
    rank.take(host.output);
    host.output.clear();
    host.take(rank.output);
    host.output[at] = static_cast<char>(host.output[at] ^ 1);
    rank.take(host.output);
    CHECK(rank.over());
    CHECK_FALSE(rank.has_id());
    CHECK(rank.status().ok());
  }
}

TEST_CASE("talk: another protocol is recognised by its first bytes") {
  const Launch launch = at_port(0, 2, 1);
  const UniqueId id = some_id();
  for (const char* words : {"GET / HTTP/1.1", "l@", "lathe-i1", "\x16\x03\x01"}) {
    HostTalk host(launch, id, nonce('h'), nobody);
    host.take(words);
    CHECK(host.over());
    CHECK(host.output.empty());
    CHECK_FALSE(host.greeted());
  }
  HostTalk patient(launch, id, nonce('h'), nobody);
  patient.take("lathe-");
  CHECK_FALSE(patient.over());
}
