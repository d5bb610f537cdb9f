// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Messages between the library and its compile process, over a socket. Both ends are of one build,
// so the format has no version. A message is its length (8 bytes) and fields; a field is a number
// of 8 bytes or a text, which is its length and its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

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

// A struct with a list of its fields, which travel in that order.
template <typename T>
concept Fields = requires(T& value) {
  T::fields(value);
};

// Appends numbers, texts, structs of them and lists; a list goes behind its length.
struct MessageWriter {
  void put(int64_t value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void put(std::string_view value) {
    put(static_cast<int64_t>(value.size()));
    bytes.append(value);
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    put(static_cast<int64_t>(list.size()));
    for (const T& each : list) put(each);
  }
  template <Fields T>
  void put(const T& value) {
    std::apply([this](const auto&... each) { (put(each), ...); }, T::fields(value));
  }

  std::string bytes;
};

// Returns a whole message, with its length.
template <typename... Values>
std::string message_of(MessageKind kind, const Values&... values) {
  MessageWriter fields;
  fields.put(static_cast<int64_t>(kind));
  (fields.put(values), ...);
  MessageWriter whole;
  whole.put(fields.bytes);
  return std::move(whole.bytes);
}

// Reads a message's fields in their order. A missing field reads as 0 or as empty text, and good()
// is false from then on.
class MessageReader {
 public:
  explicit MessageReader(std::string_view message) : left_(message) {}
  MessageKind kind() { return static_cast<MessageKind>(number()); }
  int64_t number();
  std::string_view text();
  // The counterpart of MessageWriter::add; gives good().
  template <typename... Values>
  bool take(Values&... values) {
    (get(&values), ...);
    return good_;
  }
  bool good() const { return good_; }

 private:
  void get(int64_t* value) { *value = number(); }
  void get(int* value) { *value = static_cast<int>(number()); }
  void get(std::string* value) { *value = text(); }
  template <typename T>
  void get(std::vector<T>* list) {
    const int64_t count = number();
    for (int64_t i = 0; i < count && good_; ++i) get(&list->emplace_back());
  }
  template <Fields T>
  void get(T* value) {
    std::apply([this](auto&... each) { take(each...); }, T::fields(*value));
  }

  std::string_view left_;
  bool good_ = true;
};

// False if the other end is gone. Never raises SIGPIPE.
bool send_bytes(int socket, std::string_view bytes);

enum class Received { message, ended, late };

// Returns the next message without its length. `deadline_ms` is of milliseconds_now(); below 0:
// none.
Received receive_message(int socket, int64_t deadline_ms, std::string* message);

int64_t milliseconds_now();  // CLOCK_MONOTONIC

}  // namespace lathe
