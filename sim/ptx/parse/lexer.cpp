// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file implements the PTX lexer.
#include "sim/ptx/parse/lexer.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "sim/model/letters.h"

namespace sim {
namespace {

bool is_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool is_follow(char c) { return is_start(c) || is_digit(c); }

class Lexer {
 public:
  Lexer(std::string_view text, std::vector<Token>* out) : text_(text), out_(out) {}

  bool run(std::string* error) {
    while (skip_space() && at_ < text_.size()) {
      const char c = text_[at_];
      bool ok = true;
      if (is_start(c) || (c == '.' && at_ + 1 < text_.size() && is_start(text_[at_ + 1]))) {
        word();
      } else if (is_digit(c)) {
        ok = number();
      } else if (c == '"') {
        ok = quoted();
      } else {
        push(Token::Kind::punct, at_, at_ + 1);
        ++at_;
      }
      if (!ok) {
        *error = "line " + std::to_string(line_) + ": bad token near '" +
                 std::string(text_.substr(at_, 16)) + "'";
        return false;
      }
    }
    if (!closed_) {
      *error = "line " + std::to_string(line_) + ": comment without an end";
      return false;
    }
    push(Token::Kind::end, text_.size(), text_.size());
    return true;
  }

 private:
  void push(Token::Kind kind, size_t from, size_t to, uint64_t bits = 0) {
    out_->push_back({kind, text_.substr(from, to - from), bits, line_});
  }

  bool skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        ++at_;
      } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v' || c == '\0') {
        ++at_;
      } else if (c == '/' && text_.substr(at_, 2) == "//") {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '/' && text_.substr(at_, 2) == "/*") {
        const size_t end = text_.find("*/", at_ + 2);
        closed_ = end != std::string_view::npos;
        const size_t stop = closed_ ? end + 2 : text_.size();
        for (; at_ < stop; ++at_) line_ += text_[at_] == '\n';
      } else {
        break;
      }
    }
    return true;
  }

  // An instruction holds its modifiers; `.reg.b32` is two directives.
  void word() {
    const bool directive = text_[at_] == '.';
    const size_t from = at_++;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool dot =
          c == '.' && !directive && at_ + 1 < text_.size() && is_follow(text_[at_ + 1]);
      const bool scope = text_.substr(at_, 2) == "::";
      if (scope) {
        at_ += 2;
      } else if (is_follow(c) || dot) {
        ++at_;
      } else {
        break;
      }
    }
    push(Token::Kind::word, from, at_);
  }

  // 0f3F800000, 0d..., 0x, 0b, octal, decimal with U, or a decimal fraction (a double).
  bool number() {
    const size_t from = at_;
    const char second = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (text_[at_] == '0' && std::strchr("fFdD", second) && second != '\0') return real_bits(from);
    std::string digits;
    bool fraction = false;
    const bool hex = text_[at_] == '0' && (second == 'x' || second == 'X');
    const bool binary = text_[at_] == '0' && (second == 'b' || second == 'B');
    if (hex || binary) at_ += 2;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const bool exponent = !hex && (c == 'e' || c == 'E');
      const bool sign = (c == '+' || c == '-') && fraction && std::strchr("eE", text_[at_ - 1]);
      if (!(is_digit(c) || (hex && is_hex_digit(c)) || exponent || sign || (!hex && c == '.'))) {
        break;
      }
      fraction |= exponent || (!hex && c == '.');
      digits += c;
    }
    if (digits.empty()) return false;
    if (fraction) return decimal(from, digits);
    char* end = nullptr;
    const int base = hex ? 16 : binary ? 2 : digits[0] == '0' ? 8 : 10;
    const uint64_t value = std::strtoull(digits.c_str(), &end, base);
    if (at_ < text_.size() && text_[at_] == 'U') ++at_;
    push(Token::Kind::integer, from, at_, value);
    return *end == '\0';
  }

  // A decimal fraction, which has a point in every locale. Values that no double holds are infinite
  // or 0, as in C.
  bool decimal(size_t from, const std::string& digits) {
    double value = 0;
    const char* const last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, value);
    if (error == std::errc::result_out_of_range) {
      value = digits.find('-') == std::string::npos ? HUGE_VAL : 0.0;
    } else if (error != std::errc()) {
      return false;
    }
    push(Token::Kind::real64, from, at_, std::bit_cast<uint64_t>(value));
    return end == last;
  }

  bool real_bits(size_t from) {
    const bool wide = text_[at_ + 1] == 'd' || text_[at_ + 1] == 'D';
    const size_t count = wide ? 16 : 8;
    const std::string digits(text_.substr(at_ + 2, count));
    char* end = nullptr;
    const uint64_t bits = std::strtoull(digits.c_str(), &end, 16);
    at_ += 2 + count;
    push(wide ? Token::Kind::real64 : Token::Kind::real32, from, std::min(at_, text_.size()), bits);
    return digits.size() == count && *end == '\0';
  }

  bool quoted() {
    const size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) return false;
    push(Token::Kind::string, at_ + 1, end);
    at_ = end + 1;
    return true;
  }

  std::string_view text_;
  std::vector<Token>* out_;
  size_t at_ = 0;
  int line_ = 1;
  bool closed_ = true;
};

}  // namespace

bool tokenize(std::string_view text, std::vector<Token>* out, std::string* error) {
  out->clear();
  out->reserve(text.size() / 5 + 16);
  return Lexer(text, out).run(error);
}

}  // namespace sim
