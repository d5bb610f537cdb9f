// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This target fuzzes messages and files of a rendezvous. Whatever the bytes: a decoder refuses
// them, or what it gives encodes to the same bytes; rank 0 gives its id to nobody who does not
// prove the secret; a rank believes nobody who does not. Each input is taken as it is, and also
// with the proof that its bytes should have, since no mutation finds one.
#include "collective/rendezvous/rendezvous_talk.h"
#include "tests/fuzz/property.h"

using namespace lathe;

namespace {

constexpr int kWorld = 3;

Launch launch(int rank) {
  Launch out;
  out.world = kWorld;
  out.rank = rank;
  out.run = "/run";
  out.secret = "key";
  return out;
}

// No bytes of a message that is made here are like these.
UniqueId id_of_rank0() {
  UniqueId out;
  for (char& byte : out.internal) byte = '\x5a';
  return out;
}

Nonce nonce(char value) {
  Nonce out;
  out.fill(value);
  return out;
}

void take_in_pieces(Talk& talk, std::string_view bytes, size_t piece) {
  while (!bytes.empty()) talk.take(fuzz::take(bytes, piece));
}

void check_decoders(std::string_view input) {
  if (const auto greeting = decode_greeting(input)) FUZZ_CHECK(encode(*greeting) == input);
  if (const auto reply = decode_reply(input)) FUZZ_CHECK(encode(*reply) == input);
  if (const auto question = decode_question(input)) FUZZ_CHECK(encode(*question) == input);
  if (const auto answer = decode_answer(input)) {
    FUZZ_CHECK(answer_bytes(static_cast<uint32_t>(answer->nonces.size())) == input.size());
    FUZZ_CHECK(encode(*answer) == input);
  }
  if (is_challenge(input)) {
    Nonce inside;
    const std::string_view bytes = input.substr(kMagicBytes);
    std::copy(bytes.begin(), bytes.end(), inside.begin());
    FUZZ_CHECK(encode_challenge(inside) == input);
  }
}

// A host that has heard all of `said`.
struct Heard {
  Heard(std::string_view said, size_t piece)
      : own(launch(0)), id(id_of_rank0()), talk(own, id, nonce('h'), [](int) { return false; }) {
    take_in_pieces(talk, said, piece);
  }
  bool gave_id() const {
    return talk.output.find(std::string(id.internal, sizeof id.internal)) != std::string::npos;
  }
  Launch own;
  UniqueId id;
  HostTalk talk;
};

void check_host(std::string_view input, size_t piece) {
  const Heard whole(input, input.size() + 1), pieces(input, piece);
  FUZZ_CHECK(whole.talk.output == pieces.talk.output);
  FUZZ_CHECK(whole.talk.wanted() == pieces.talk.wanted());
  FUZZ_CHECK(whole.talk.refused() == pieces.talk.refused());
  const std::string challenge = encode_challenge(nonce('h'));
  const std::string_view greeting = input.substr(0, kGreetingBytes);
  const bool proven =
      input.size() >= kGreetingBytes + kCodeBytes &&
      input.substr(kGreetingBytes, kCodeBytes) == bytes_of(rank_code("key", greeting, challenge));
  FUZZ_CHECK(proven || (!whole.gave_id() && whole.talk.welcomed() < 0));

  const auto fields = decode_greeting(greeting);
  if (!fields) return;
  std::string said(greeting);
  said += bytes_of(rank_code("key", greeting, challenge));
  said += input.substr(kGreetingBytes);
  const Heard rank(said, piece);
  const bool ours = fields->run == sha256(rank.own.run) && fields->world == kWorld &&
                    fields->rank > 0 && fields->rank < kWorld;
  FUZZ_CHECK(rank.gave_id() == ours);
  FUZZ_CHECK(rank.talk.welcomed() == (ours ? static_cast<int>(fields->rank) : -1));
  FUZZ_CHECK(rank.talk.refused().empty() == ours);
}

void check_rank(std::string_view input, size_t piece) {
  const Launch own = launch(1);
  RankTalk unproven(own, nonce('r'));
  const std::string greeting = unproven.output;
  take_in_pieces(unproven, input, piece);
  FUZZ_CHECK(!unproven.has_id());
  FUZZ_CHECK(unproven.status().ok() && !unproven.why().empty());

  const std::string challenge = encode_challenge(nonce('c'));
  std::string reply(input.substr(0, kReplyBytes));
  reply.resize(kReplyBytes);
  RankTalk rank(own, nonce('r'));
  take_in_pieces(rank, challenge + reply, piece);
  take_in_pieces(rank, bytes_of(host_code("key", greeting, challenge, reply)), piece);
  FUZZ_CHECK(rank.over());
  const auto fields = decode_reply(reply);
  FUZZ_CHECK(rank.has_id() == (fields && fields->verdict == Verdict::welcome));
  if (rank.has_id()) {
    FUZZ_CHECK(std::string_view(rank.id().internal, sizeof rank.id().internal) ==
               std::string_view(fields->id.internal, sizeof fields->id.internal));
  } else {
    FUZZ_CHECK(!rank.status().ok() || !rank.why().empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input = fuzz::as_text(data, size);
  check_decoders(input);
  const size_t piece = fuzz::take_number(input, 1) % 64 + 1;
  check_host(input, piece);
  check_rank(input, piece);
  return 0;
}
