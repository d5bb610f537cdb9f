// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes the bytes that ranks exchange before they have a communicator: messages of
// the socket (rendezvous_talk.h says in which order) and files of the folder
// (rendezvous_folder.cpp). Pure.
//
// Numbers have the highest byte first. Each message and file begins with eight bytes that name its
// kind. A decoder takes exactly the bytes that its encoder makes, and nothing else.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/sha256.h"
#include "collective/group.h"
#include "collective/rendezvous/nonce.h"

namespace lathe {

constexpr size_t kMagicBytes = 8;
constexpr std::string_view kSocketMagic = "lathe-i2", kQuestionMagic = "lathe-q2",
                           kAnswerMagic = "lathe-a2";

// --- Socket ---

// Greeting is a rank's first message.
struct Greeting {
  uint32_t world = 0, rank = 0;
  Sha256Digest run{};  // of the launcher's name of the run
  Nonce nonce{};       // drawn for this connection
};
constexpr size_t kGreetingBytes = kMagicBytes + 8 + 32 + 16;
std::string encode(const Greeting& greeting);
std::optional<Greeting> decode_greeting(std::string_view bytes);

// The challenge is rank 0's answer to the greeting: another nonce, drawn for this connection.
constexpr size_t kChallengeBytes = kMagicBytes + 16;
std::string encode_challenge(const Nonce& nonce);
bool is_challenge(std::string_view bytes);

enum class Verdict : uint32_t {
  welcome,
  other_world,
  other_run,
  no_such_rank,
  other_secret,
  taken
};
constexpr uint32_t kVerdicts = 6;

struct Reply {
  Verdict verdict = Verdict::welcome;
  uint32_t world = 0;  // rank 0's
  UniqueId id{};       // zeros unless welcome
};
constexpr size_t kCodeBytes = sizeof(Sha256Digest);
constexpr size_t kReplyBytes = kMagicBytes + 8 + NCCL_UNIQUE_ID_BYTES;
std::string encode(const Reply& reply);
std::optional<Reply> decode_reply(std::string_view bytes);

// Returns the code by which a rank shows that it knows the secret, without sending the secret.
Sha256Digest rank_code(std::string_view secret, std::string_view greeting,
                       std::string_view challenge);
// Returns the code by which rank 0 shows the same, and that nobody has changed its reply.
Sha256Digest host_code(std::string_view secret, std::string_view greeting,
                       std::string_view challenge, std::string_view reply);

// --- Folder ---

// MeetingQuestion is a rank's file. At first the file asks for the id; once the rank has the id,
// the file names the meeting that gave it.
struct MeetingQuestion {
  bool has_id = false;
  uint32_t world = 0, rank = 0;
  Sha256Digest run{};
  Nonce nonce{};    // drawn for this question
  Nonce meeting{};  // zeros while it asks
};
constexpr size_t kQuestionBytes = kMagicBytes + 12 + 32 + 16 + 16;
std::string encode(const MeetingQuestion& question);
std::optional<MeetingQuestion> decode_question(std::string_view bytes);

// Answer is rank 0's file.
struct Answer {
  Sha256Digest run{};
  Nonce meeting{};  // drawn for each call of rank 0
  UniqueId id{};
  std::vector<Nonce> nonces;  // of each rank's question; rank 0's is zeros
};
size_t answer_bytes(uint32_t world);
std::string encode(const Answer& answer);
std::optional<Answer> decode_answer(std::string_view bytes);

}  // namespace lathe
