// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Letters and numbers of ASCII alone. The functions of <cctype>, strtod and printf follow the
// locale of the program that the simulator is loaded into, which may have a decimal comma.
#pragma once

#include <clocale>

namespace sim {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
constexpr bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool is_alphanumeric(char c) { return is_digit(c) || is_upper(c) || is_lower(c); }
constexpr bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
constexpr char to_lower(char c) { return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c; }

// While one lives, printf and its kin write numbers in this thread as in the locale "C".
class PlainNumbers {
 public:
  PlainNumbers() : before_(uselocale(plain())) {}
  ~PlainNumbers() { uselocale(before_); }
  PlainNumbers(const PlainNumbers&) = delete;
  PlainNumbers& operator=(const PlainNumbers&) = delete;

 private:
  static locale_t plain() {
    static const locale_t one = newlocale(LC_ALL_MASK, "C", locale_t{});
    return one;
  }

  locale_t before_;
};

}  // namespace sim
