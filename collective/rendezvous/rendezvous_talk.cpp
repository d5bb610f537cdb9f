// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements both sides of the conversation.
#include "collective/rendezvous/rendezvous_talk.h"

#include <algorithm>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

constexpr char kArrived = 1;

}  // namespace

void Talk::take(std::string_view bytes) {
  while (!over() && !bytes.empty()) {
    const size_t taken = std::min(wanted(), bytes.size());
    in_ += bytes.substr(0, taken);
    bytes.remove_prefix(taken);
    // Another protocol is recognised by its first bytes, however many it sends.
    const std::string_view begin = kSocketMagic.substr(0, in_.size());
    const bool foreign = wanted_ >= kMagicBytes && wanted_ != kCodeBytes && !in_.starts_with(begin);
    if (!foreign && in_.size() < wanted_) return;
    wanted_ = foreign ? 0 : hear(in_);
    in_.clear();
  }
}

size_t HostTalk::hear(const std::string& message) {
  if (greeting_.empty()) {
    greeting_ = message;
    challenge_ = encode_challenge(nonce_);
    output += challenge_;
    return kCodeBytes;
  }
  if (welcomed_ < 0) return hear_proof(message);
  confirmed_ = message[0] == kArrived;
  return 0;
}

size_t HostTalk::hear_proof(const std::string& message) {
  const auto greeting = decode_greeting(greeting_);
  if (!greeting) return 0;
  const bool proven =
      same_code(message, bytes_of(rank_code(launch_.secret, greeting_, challenge_)));
  Reply reply;
  reply.verdict = judge(*greeting, proven);
  reply.world = static_cast<uint32_t>(launch_.world);
  if (reply.verdict == Verdict::welcome) {
    welcomed_ = static_cast<int>(greeting->rank);
    reply.id = id_;
  }
  const std::string bytes = encode(reply);
  output += bytes;
  output += bytes_of(host_code(launch_.secret, greeting_, challenge_, bytes));
  return reply.verdict == Verdict::welcome ? sizeof kArrived : 0;
}

Verdict HostTalk::judge(const Greeting& greeting, bool proven) {
  const uint32_t rank = greeting.rank, world = static_cast<uint32_t>(launch_.world);
  const auto refuse = [&](Verdict verdict, std::string peer) {
    refused_ = std::move(peer);
    return verdict;
  };
  if (!proven) {
    return refuse(Verdict::other_secret,
                  text("a rank ", rank, " with another LATHE_RENDEZVOUS_SECRET"));
  }
  if (greeting.run != sha256(launch_.run)) {
    return refuse(Verdict::other_run, text("rank ", rank, " of another run"));
  }
  if (greeting.world != world) {
    return refuse(Verdict::other_world, text("a rank ", rank, " of ", greeting.world));
  }
  if (rank == 0 || rank >= world) {
    return refuse(Verdict::no_such_rank, text("a second rank ", rank));
  }
  if (taken_(static_cast<int>(rank))) {
    return refuse(Verdict::taken, text("a second rank ", rank, " while the first was served"));
  }
  return Verdict::welcome;
}

RankTalk::RankTalk(const Launch& launch, const Nonce& nonce)
    : Talk(kChallengeBytes), launch_(launch) {
  greeting_ = encode(Greeting{.world = static_cast<uint32_t>(launch.world),
                              .rank = static_cast<uint32_t>(launch.rank),
                              .run = sha256(launch.run),
                              .nonce = nonce});
  output = greeting_;
}

size_t RankTalk::hear(const std::string& message) {
  if (!challenge_.empty()) {
    hear_reply(message);
    return 0;
  }
  challenge_ = message;
  output += bytes_of(rank_code(launch_.secret, greeting_, challenge_));
  return kReplyBytes + kCodeBytes;
}

void RankTalk::hear_reply(const std::string& message) {
  const std::string bytes = message.substr(0, kReplyBytes);
  const auto reply = decode_reply(bytes);
  if (!reply) return;
  const bool proven = same_code(std::string_view(message).substr(kReplyBytes),
                                bytes_of(host_code(launch_.secret, greeting_, challenge_, bytes)));
  // A peer that cannot prove the secret may be anybody, so a failure that such a peer reports is
  // not final.
  if (!proven || reply->verdict == Verdict::other_secret) {
    why_ = launch_.secret.empty() ? "rank 0 there wants a LATHE_RENDEZVOUS_SECRET, which is not set"
                                  : "rank 0 there has another LATHE_RENDEZVOUS_SECRET, or none";
    return;
  }
  switch (reply->verdict) {
    case Verdict::welcome:
      id_ = reply->id;
      has_id_ = true;
      output += kArrived;
      break;
    case Verdict::other_run:  // it may end and make room for ours
      why_ = "rank 0 there belongs to another run";
      break;
    case Verdict::taken:  // the other process may be dead, which rank 0 will notice
      why_ = text("another process is served there as rank ", launch_.rank);
      break;
    case Verdict::other_world:
      status_ = invalid(text("rank ", launch_.rank, " is told of ", launch_.world,
                             " ranks, rank 0 of ", reply->world));
      break;
    default:
      status_ = invalid(text("rank 0 refuses rank ", launch_.rank));
  }
}

}  // namespace lathe
