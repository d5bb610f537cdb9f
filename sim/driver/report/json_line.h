// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A JsonLine is one JSON object of a report, built member by member.
#pragma once

#include <cstdint>
#include <string>

namespace sim::driver {

class JsonLine {
 public:
  void add(const char* name, const std::string& text);
  void add(const char* name, const char* text) { add(name, std::string(text)); }
  void add(const char* name, uint64_t value);
  void add(const char* name, int value);
  void add(const char* name, double value);
  void add(const char* name, const uint32_t (&value)[3]);
  void add_address(const char* name, uint64_t value);  // as "0x7f00"
  void add(const char* name, const JsonLine& object);
  // Adds several members, in pairs of name and value.
  template <typename Value, typename... Rest>
  requires(sizeof...(Rest) > 0) void add(const char* name, const Value& value,
                                         const Rest&... rest) {
    add(name, value);
    add(rest...);
  }
  // `json` is JSON already.
  void raw(const std::string& name, const std::string& json);
  std::string text() const { return text_.empty() ? "{}" : text_ + "}"; }

 private:
  std::string text_;
};

}  // namespace sim::driver
