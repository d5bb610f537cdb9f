// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Messages between the library and its compile process, over a socket. Both ends are of one build,
// so the format has no version. A message is its length (8 bytes) and fields; a field is a number
// of 8 bytes or a text, which is its length and its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

enum class MessageKind : int64_t {
  open = 1,  // to the process: memory limit, driver, candidates, headers. The answer: facts
  compile,   // to the process: seconds, unit, options, headers. The answer: begun, then outcome
  facts,
  failure,  // in place of facts: a text
  begun,    // the request was read: from here on an end of the process is the request's doing
  outcome,
  last_words,  // a signal (0: exit() was called) and what the compiler printed
};

class MessageWriter {
 public:
  explicit MessageWriter(MessageKind kind) : bytes_(sizeof(uint64_t), '\0') {
    number(static_cast<int64_t>(kind));
  }
  void number(int64_t value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  void text(std::string_view value) {
    number(static_cast<int64_t>(value.size()));
    bytes_.append(value);
  }
  // The whole message, with its length.
  const std::string& finish();

 private:
  std::string bytes_;
};

// Reads a message's fields in their order. What is not there reads as 0 or as empty text, and
// good() is false from then on.
class MessageReader {
 public:
  explicit MessageReader(std::string_view message) : left_(message) {}
  MessageKind kind() { return static_cast<MessageKind>(number()); }
  int64_t number();
  std::string_view text();
  bool good() const { return good_; }

 private:
  std::string_view left_;
  bool good_ = true;
};

// False if the other end is gone. Never raises SIGPIPE.
bool send_bytes(int socket, std::string_view bytes);

enum class Received { message, ended, late };

// The next message without its length. `deadline_ms` is of milliseconds_now(); below 0: none.
Received receive_message(int socket, int64_t deadline_ms, std::string* message);

int64_t milliseconds_now();  // CLOCK_MONOTONIC

}  // namespace lathe
