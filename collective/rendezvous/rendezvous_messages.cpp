// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the fields of each message, and computes the codes that prove a secret.
#include "collective/rendezvous/rendezvous_messages.h"

#include <array>
#include <cstring>

namespace lathe {
namespace {

constexpr uint32_t kAsks = 1, kHasId = 2;

// Moves the fields of a message, in their order, into bytes or out of bytes. A message lists its
// fields once, for both ways.
class Fields {
 public:
  explicit Fields(std::string_view magic) : written_(magic) {}
  Fields(std::string_view magic, std::string_view bytes)
      : reads_(true), holds_(bytes.starts_with(magic)) {
    if (holds_) left_ = bytes.substr(magic.size());
  }
  template <typename... Field>
  void operator()(Field&... fields) {
    (move(fields), ...);
  }
  // Records a condition of a valid message; bytes that break one condition are not decoded.
  void require(bool condition) { holds_ = holds_ && condition; }
  bool reads() const { return reads_; }
  size_t left() const { return left_.size(); }
  bool complete() const { return holds_ && left_.empty(); }
  const std::string& written() const { return written_; }

 private:
  void move(uint32_t& value) {
    std::array<char, 4> bytes;
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(value >> (24 - 8 * i));
    move(bytes);
    value = 0;
    for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  }
  void move(Verdict& verdict) {
    auto number = static_cast<uint32_t>(verdict);
    move(number);
    require(number < kVerdicts);
    verdict = static_cast<Verdict>(number);
  }
  void move(UniqueId& id) { move(id.internal, sizeof id.internal); }
  template <typename Byte, size_t kBytes>
  void move(std::array<Byte, kBytes>& bytes) {
    move(bytes.data(), kBytes);
  }
  void move(void* field, size_t bytes) {
    if (!reads_) written_.append(static_cast<const char*>(field), bytes);
    require(!reads_ || left_.size() >= bytes);
    if (!reads_ || !holds_) return;
    std::memcpy(field, left_.data(), bytes);
    left_.remove_prefix(bytes);
  }

  std::string written_;
  bool reads_ = false, holds_ = true;
  std::string_view left_;
};

void move_fields(Greeting* message, Fields* fields) {
  (*fields)(message->world, message->rank, message->run, message->nonce);
}
void move_fields(Reply* message, Fields* fields) {
  (*fields)(message->verdict, message->world, message->id);
}
void move_fields(MeetingQuestion* message, Fields* fields) {
  uint32_t kind = message->has_id ? kHasId : kAsks;
  (*fields)(kind, message->world, message->rank, message->run, message->nonce, message->meeting);
  message->has_id = kind == kHasId;
  fields->require(message->has_id || (kind == kAsks && message->meeting == Nonce{}));
}
void move_fields(Answer* message, Fields* fields) {
  auto world = static_cast<uint32_t>(message->nonces.size());
  (*fields)(world, message->run, message->meeting, message->id);
  if (fields->reads()) {
    fields->require(fields->left() == world * sizeof(Nonce));
    message->nonces.resize(fields->left() / sizeof(Nonce));
  }
  for (Nonce& nonce : message->nonces) (*fields)(nonce);
}

template <typename Message>
std::string encoded(std::string_view magic, Message message) {
  Fields fields(magic);
  move_fields(&message, &fields);
  return fields.written();
}
template <typename Message>
std::optional<Message> decoded(std::string_view magic, std::string_view bytes) {
  Message out;
  Fields fields(magic, bytes);
  move_fields(&out, &fields);
  return fields.complete() ? std::optional<Message>(std::move(out)) : std::nullopt;
}

// Computes the code over who speaks and all messages so far. Every piece but the last has a fixed
// length, so no two conversations give the same bytes.
Sha256Digest code(std::string_view secret, std::string_view who, std::string_view greeting,
                  std::string_view challenge, std::string_view reply) {
  std::string said(who);
  for (const std::string_view piece : {greeting, challenge, reply}) said += piece;
  return hmac_sha256(secret, said);
}

}  // namespace

std::string encode(const Greeting& greeting) { return encoded(kSocketMagic, greeting); }
std::string encode(const Reply& reply) { return encoded(kSocketMagic, reply); }
std::string encode(const MeetingQuestion& question) { return encoded(kQuestionMagic, question); }
std::string encode(const Answer& answer) { return encoded(kAnswerMagic, answer); }

std::optional<Greeting> decode_greeting(std::string_view bytes) {
  return decoded<Greeting>(kSocketMagic, bytes);
}
std::optional<Reply> decode_reply(std::string_view bytes) {
  return decoded<Reply>(kSocketMagic, bytes);
}
std::optional<MeetingQuestion> decode_question(std::string_view bytes) {
  return decoded<MeetingQuestion>(kQuestionMagic, bytes);
}
std::optional<Answer> decode_answer(std::string_view bytes) {
  return decoded<Answer>(kAnswerMagic, bytes);
}

std::string encode_challenge(const Nonce& nonce) {
  return std::string(kSocketMagic) + std::string(bytes_of(nonce));
}
bool is_challenge(std::string_view bytes) {
  return bytes.size() == kChallengeBytes && bytes.starts_with(kSocketMagic);
}

size_t answer_bytes(uint32_t world) {
  return kMagicBytes + 4 + sizeof(Sha256Digest) + sizeof(Nonce) + NCCL_UNIQUE_ID_BYTES +
         world * sizeof(Nonce);
}

Sha256Digest rank_code(std::string_view secret, std::string_view greeting,
                       std::string_view challenge) {
  return code(secret, "lathe rank says:", greeting, challenge, "");
}

Sha256Digest host_code(std::string_view secret, std::string_view greeting,
                       std::string_view challenge, std::string_view reply) {
  return code(secret, "lathe host says:", greeting, challenge, reply);
}

}  // namespace lathe
