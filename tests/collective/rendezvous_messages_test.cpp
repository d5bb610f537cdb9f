// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Each message and file: what is encoded is decoded, and every other length or kind is refused.
#include "collective/rendezvous/rendezvous_messages.h"

#include "tests/collective/rendezvous_cases.h"

using namespace lathe;
using namespace rendezvous;

namespace {

// Whole and accepted; shorter, longer or of another kind and refused.
template <typename Decode>
void check_sizes(const std::string& bytes, Decode decode) {
  REQUIRE(decode(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) CHECK_FALSE(decode(bytes.substr(0, size)));
  CHECK_FALSE(decode(bytes + '\0'));
  std::string other = bytes;
  other[0] = 'L';
  CHECK_FALSE(decode(other));
}

}  // namespace

TEST_CASE("messages: a greeting") {
  Greeting greeting;
  greeting.world = 0x01020304;
  greeting.rank = 7;
  greeting.run = sha256("run");
  greeting.nonce = nonce('n');
  const std::string bytes = encode(greeting);
  CHECK(bytes.substr(0, 16) == std::string("lathe-i2\1\2\3\4\0\0\0\7", 16));
  check_sizes(bytes, [](const std::string& from) { return decode_greeting(from).has_value(); });
  const auto back = decode_greeting(bytes);
  CHECK(back->world == greeting.world);
  CHECK(back->rank == greeting.rank);
  CHECK(back->run == greeting.run);
  CHECK(back->nonce == greeting.nonce);
  check_sizes(encode_challenge(greeting.nonce),
              [](const std::string& from) { return is_challenge(from); });
}

TEST_CASE("messages: a reply, with the verdicts there are") {
  for (uint32_t verdict = 0; verdict < kVerdicts; ++verdict) {
    Reply reply;
    reply.verdict = static_cast<Verdict>(verdict);
    reply.world = 3;
    reply.id = some_id();
    std::string bytes = encode(reply);
    check_sizes(bytes, [](const std::string& from) { return decode_reply(from).has_value(); });
    const auto back = decode_reply(bytes);
    CHECK(back->verdict == reply.verdict);
    CHECK(back->world == 3);
    CHECK(same(back->id, reply.id));
    bytes[11] = static_cast<char>(kVerdicts);
    CHECK_FALSE(decode_reply(bytes));
  }
}

TEST_CASE("messages: a question, asking and confirmed") {
  for (const bool has_id : {false, true}) {
    MeetingQuestion question;
    question.has_id = has_id;
    question.world = 5;
    question.rank = 4;
    question.run = sha256("run");
    question.nonce = nonce('n');
    if (has_id) question.meeting = nonce('m');
    std::string bytes = encode(question);
    check_sizes(bytes, [](const std::string& from) { return decode_question(from).has_value(); });
    const auto back = decode_question(bytes);
    CHECK(back->has_id == has_id);
    CHECK(back->world == 5);
    CHECK(back->rank == 4);
    CHECK(back->run == question.run);
    CHECK(back->nonce == question.nonce);
    CHECK(back->meeting == question.meeting);
    bytes[11] = 3;
    CHECK_FALSE(decode_question(bytes));
  }
}

TEST_CASE("messages: an answer, whose length follows from its world") {
  Answer answer;
  answer.run = sha256("run");
  answer.meeting = nonce('m');
  answer.id = some_id();
  answer.nonces = {Nonce{}, nonce('a'), nonce('b')};
  std::string bytes = encode(answer);
  CHECK(bytes.size() == answer_bytes(3));
  check_sizes(bytes, [](const std::string& from) { return decode_answer(from).has_value(); });
  const auto back = decode_answer(bytes);
  CHECK(back->run == answer.run);
  CHECK(back->meeting == answer.meeting);
  CHECK(same(back->id, answer.id));
  CHECK(back->nonces == answer.nonces);
  bytes[8] = '\x7f';  // a world of 2^31
  CHECK_FALSE(decode_answer(bytes));
}

TEST_CASE("messages: the codes of both sides differ in everything that they prove") {
  const std::string a(kGreetingBytes, 'a'), b(kGreetingBytes, 'b'), c(kChallengeBytes, 'c');
  const std::string none;
  const std::vector<Sha256Digest> codes = {
      rank_code("key", a, c),       rank_code("kez", a, c),
      rank_code("key", b, c),       rank_code("key", a, std::string(kChallengeBytes, 'd')),
      host_code("key", a, c, none), host_code("key", a, c, "x"),
      host_code("kez", a, c, none), host_code("key", b, c, none)};
  for (size_t i = 0; i < codes.size(); ++i) {
    for (size_t k = 0; k < i; ++k) CHECK(codes[i] != codes[k]);
  }
}
