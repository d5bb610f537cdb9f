// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Holds the conversation between a rank and rank 0 on one connection, without the connection: each
// side takes bytes and gives bytes. Pure.
//
//   rank -> rank 0   greeting: world, rank, digest of the run's name, the rank's nonce
//   rank 0 -> rank   challenge: rank 0's nonce
//   rank -> rank 0   proof: HMAC(secret, greeting + challenge)
//   rank 0 -> rank   reply: verdict, world, the id; HMAC(secret, greeting + challenge + reply)
//   rank -> rank 0   one byte: the id has arrived, this rank need not be served again
//
// The secret itself never travels, both nonces are new for each connection, so that a recorded
// conversation is worth nothing, and the two codes begin with different words, so that neither side
// can be made to compute the other's. Without LATHE_RENDEZVOUS_SECRET the secret is the empty
// string, which everybody knows: the codes then only detect a damaged message. The id is not
// encrypted: anyone who can read the network's packets can read the id.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "collective/launch.h"
#include "collective/rendezvous/rendezvous_messages.h"

namespace lathe {

// Cuts a stream of bytes into messages of known lengths.
class Talk {
 public:
  virtual ~Talk() = default;
  // Takes bytes that the peer has sent. Bytes after the end of the conversation are ignored.
  void take(std::string_view bytes);
  // Returns how many bytes the next message still needs; 0: the conversation is over.
  size_t wanted() const { return wanted_ - in_.size(); }
  bool over() const { return wanted_ == 0; }

  std::string output;  // bytes for the peer; the caller removes what it has sent

 protected:
  explicit Talk(size_t wanted) : wanted_(wanted) {}
  // Takes a whole message of `wanted` bytes. Returns the length of the next message, 0 to end.
  virtual size_t hear(const std::string& message) = 0;

 private:
  std::string in_;
  size_t wanted_;
};

// HostTalk is rank 0's side.
class HostTalk : public Talk {
 public:
  // Says whether another connection is just about to give this rank its id.
  using Taken = std::function<bool(int rank)>;

  // The caller keeps the arguments alive as long as the object lives.
  HostTalk(const Launch& launch, const UniqueId& id, const Nonce& nonce, Taken taken)
      : Talk(kGreetingBytes), launch_(launch), id_(id), taken_(std::move(taken)), nonce_(nonce) {}

  // Returns the rank that was given the id, confirmed or not; -1: none.
  int welcomed() const { return welcomed_; }
  bool confirmed() const { return confirmed_; }
  bool greeted() const { return !greeting_.empty(); }
  // Names the peer and what was wrong with it; empty if nothing was wrong.
  const std::string& refused() const { return refused_; }

 private:
  size_t hear(const std::string& message) override;
  size_t hear_proof(const std::string& message);
  Verdict judge(const Greeting& greeting, bool proven);

  const Launch& launch_;
  const UniqueId& id_;
  Taken taken_;
  Nonce nonce_;
  std::string greeting_, challenge_, refused_;
  int welcomed_ = -1;
  bool confirmed_ = false;
};

// RankTalk is the side of every other rank.
class RankTalk : public Talk {
 public:
  // The caller keeps `launch` alive as long as the object lives.
  RankTalk(const Launch& launch, const Nonce& nonce);

  // Returns, once the conversation is over, whether id() is rank 0's. If not, either status() is a
  // failure that another attempt cannot cure, or why() says what went wrong.
  bool has_id() const { return has_id_; }
  const UniqueId& id() const { return id_; }
  const Status& status() const { return status_; }
  const std::string& why() const { return why_; }

 private:
  size_t hear(const std::string& message) override;
  void hear_reply(const std::string& message);

  const Launch& launch_;
  std::string greeting_, challenge_, why_ = "the answer is not rank 0's";
  Status status_;
  UniqueId id_{};
  bool has_id_ = false;
};

}  // namespace lathe
