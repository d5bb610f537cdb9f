// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Encoders and decoders, each pair side by side.
#include "collective/rendezvous/rendezvous_messages.h"

#include <cstring>

namespace lathe {
namespace {

constexpr uint32_t kAsks = 1, kHasId = 2;

void put(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}
void put(std::string& to, const UniqueId& id) { to.append(id.bytes, sizeof id.bytes); }
void put(std::string& to, const Nonce& nonce) { to += bytes_of(nonce); }
void put(std::string& to, const Sha256Digest& digest) { to += bytes_of(digest); }

// Takes fields from bytes whose number was checked before.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes.substr(kMagicBytes)) {}
  void get(uint32_t& value) {
    value = 0;
    for (const char byte : take(4)) value = value << 8 | static_cast<uint8_t>(byte);
  }
  void get(UniqueId& id) { copy(id.bytes, sizeof id.bytes); }
  void get(Nonce& nonce) { copy(nonce.data(), nonce.size()); }
  void get(Sha256Digest& digest) { copy(digest.data(), digest.size()); }

 private:
  std::string_view take(size_t bytes) {
    const std::string_view out = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return out;
  }
  void copy(void* to, size_t bytes) { std::memcpy(to, take(bytes).data(), bytes); }
  std::string_view left_;
};

bool is_message(std::string_view bytes, std::string_view magic, size_t size) {
  return bytes.size() == size && bytes.starts_with(magic);
}

// The message of a code: who speaks, then all that was said. Every piece but the last has a fixed
// length, so that no two conversations give the same bytes.
Sha256Digest code(std::string_view secret, std::string_view who, std::string_view greeting,
                  std::string_view challenge, std::string_view reply) {
  std::string said(who);
  for (const std::string_view piece : {greeting, challenge, reply}) said += piece;
  return hmac_sha256(secret, said);
}

}  // namespace

std::string encode(const Greeting& greeting) {
  std::string out(kSocketMagic);
  put(out, greeting.world);
  put(out, greeting.rank);
  put(out, greeting.run);
  put(out, greeting.nonce);
  return out;
}

std::optional<Greeting> decode_greeting(std::string_view bytes) {
  if (!is_message(bytes, kSocketMagic, kGreetingBytes)) return std::nullopt;
  Greeting out;
  Fields fields(bytes);
  fields.get(out.world);
  fields.get(out.rank);
  fields.get(out.run);
  fields.get(out.nonce);
  return out;
}

std::string encode_challenge(const Nonce& nonce) {
  std::string out(kSocketMagic);
  put(out, nonce);
  return out;
}

bool is_challenge(std::string_view bytes) {
  return is_message(bytes, kSocketMagic, kChallengeBytes);
}

std::string encode(const Reply& reply) {
  std::string out(kSocketMagic);
  put(out, static_cast<uint32_t>(reply.verdict));
  put(out, reply.world);
  put(out, reply.id);
  return out;
}

std::optional<Reply> decode_reply(std::string_view bytes) {
  if (!is_message(bytes, kSocketMagic, kReplyBytes)) return std::nullopt;
  Reply out;
  uint32_t verdict = 0;
  Fields fields(bytes);
  fields.get(verdict);
  fields.get(out.world);
  fields.get(out.id);
  if (verdict >= kVerdicts) return std::nullopt;
  out.verdict = static_cast<Verdict>(verdict);
  return out;
}

Sha256Digest rank_code(std::string_view secret, std::string_view greeting,
                       std::string_view challenge) {
  return code(secret, "lathe rank says:", greeting, challenge, "");
}

Sha256Digest host_code(std::string_view secret, std::string_view greeting,
                       std::string_view challenge, std::string_view reply) {
  return code(secret, "lathe host says:", greeting, challenge, reply);
}

std::string encode(const MeetingQuestion& question) {
  std::string out(kQuestionMagic);
  put(out, question.has_id ? kHasId : kAsks);
  put(out, question.world);
  put(out, question.rank);
  put(out, question.run);
  put(out, question.nonce);
  put(out, question.meeting);
  return out;
}

std::optional<MeetingQuestion> decode_question(std::string_view bytes) {
  if (!is_message(bytes, kQuestionMagic, kQuestionBytes)) return std::nullopt;
  MeetingQuestion out;
  uint32_t kind = 0;
  Fields fields(bytes);
  fields.get(kind);
  fields.get(out.world);
  fields.get(out.rank);
  fields.get(out.run);
  fields.get(out.nonce);
  fields.get(out.meeting);
  if (kind != kAsks && kind != kHasId) return std::nullopt;
  out.has_id = kind == kHasId;
  if (!out.has_id && out.meeting != Nonce{}) return std::nullopt;
  return out;
}

size_t answer_bytes(uint32_t world) {
  return kMagicBytes + 4 + sizeof(Sha256Digest) + sizeof(Nonce) + NCCL_UNIQUE_ID_BYTES +
         world * sizeof(Nonce);
}

std::string encode(const Answer& answer) {
  std::string out(kAnswerMagic);
  put(out, static_cast<uint32_t>(answer.nonces.size()));
  put(out, answer.run);
  put(out, answer.meeting);
  put(out, answer.id);
  for (const Nonce& nonce : answer.nonces) put(out, nonce);
  return out;
}

std::optional<Answer> decode_answer(std::string_view bytes) {
  if (bytes.size() < answer_bytes(0)) return std::nullopt;
  Answer out;
  uint32_t world = 0;
  Fields fields(bytes);
  fields.get(world);
  if (!is_message(bytes, kAnswerMagic, answer_bytes(world))) return std::nullopt;
  fields.get(out.run);
  fields.get(out.meeting);
  fields.get(out.id);
  out.nonces.resize(world);
  for (Nonce& nonce : out.nonces) fields.get(nonce);
  return out;
}

}  // namespace lathe
