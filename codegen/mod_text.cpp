// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/mod_text.h"

#include <algorithm>
#include <cstdint>

#include "codegen/base/letters.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

using Kind = ModToken::Kind;

// NVRTC takes $ and letters of other alphabets into names.
bool is_word(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return is_alphanumeric(letter) || letter == '_' || letter == '$' || byte >= 0x80;
}

bool is_blank(char letter) {
  return letter == ' ' || letter == '\t' || letter == '\v' || letter == '\f' || letter == '\r';
}

// The text without the ends of lines that a backslash takes away, and the line of each character.
struct Spliced {
  std::string text;
  std::vector<int> lines;
};

class Reader {
 public:
  Reader(std::string_view given, const char* subject) : subject_(subject) {
    splice(given);
    while (out_.problem.empty() && at_ < text().size()) step();
  }
  ModTokens take() { return std::move(out_); }

 private:
  const std::string& text() const { return spliced_.text; }
  char ahead(size_t by) const { return at_ + by < text().size() ? text()[at_ + by] : '\0'; }

  void fail(const char* why, size_t at) {
    out_.problem = std::string(subject_) + why;
    out_.line = spliced_.lines.empty() ? 1 : spliced_.lines[std::min(at, text().size() - 1)];
  }

  void splice(std::string_view given) {
    int line = 1;
    spliced_.text.reserve(given.size());
    spliced_.lines.reserve(given.size());
    for (size_t at = 0; at < given.size(); ++at) {
      if (given[at] == '\\') {
        size_t end = at + 1;
        while (end < given.size() && is_blank(given[end])) ++end;
        const std::string_view between = given.substr(at + 1, end - at - 1);
        if (end == given.size() || given[end] == '\n') {
          if (end < given.size() && (between.empty() || between == "\r")) {
            at = end;
            ++line;
            continue;
          }
          // Compilers differ about the first, and the second would join what is written after it.
          spliced_.text += ' ';
          spliced_.lines.push_back(line);
          return fail(end < given.size() ? " has no blanks after a backslash that ends a line"
                                         : " does not end in a backslash",
                      text().size());
        }
      }
      spliced_.text += given[at];
      spliced_.lines.push_back(line);
      if (given[at] == '\n') ++line;
    }
  }

  void push(Kind kind, std::string word, size_t at) {
    directive_ = directive_ || (first_ && word == "#");
    out_.all.push_back({kind, std::move(word), spliced_.lines[at], first_, directive_});
    first_ = false;
  }

  void step() {
    const char letter = text()[at_];
    if (letter == '\n') {
      first_ = true, directive_ = false, ++at_;
    } else if (is_blank(letter)) {
      ++at_;
    } else if (letter == '/' && ahead(1) == '/') {
      at_ = std::min(text().find('\n', at_), text().size());
    } else if (letter == '/' && ahead(1) == '*') {
      const size_t end = text().find("*/", at_ + 2);
      if (end == text().npos) return fail(" ends the comments that it begins", at_);
      at_ = end + 2;
    } else if (is_digit(letter) || (letter == '.' && is_digit(ahead(1)))) {
      number();
    } else if (is_word(letter)) {
      word();
    } else if (letter == '"' || letter == '\'') {
      literal();
    } else {
      mark();
    }
  }

  // A number as the preprocessor has it: 1'000, 0x1p-3f, 1.e+5.
  void number() {
    const size_t begin = at_;
    for (++at_; at_ < text().size(); ++at_) {
      const char letter = text()[at_], before = text()[at_ - 1];
      const bool sign = (letter == '+' || letter == '-') &&
                        (before == 'e' || before == 'E' || before == 'p' || before == 'P');
      const bool separator = letter == '\'' && is_word(ahead(1));
      if (!is_word(letter) && letter != '.' && !sign && !separator) break;
    }
    push(Kind::number, text().substr(begin, at_ - begin), begin);
  }

  void word() {
    const size_t begin = at_;
    while (at_ < text().size() && is_word(text()[at_])) ++at_;
    std::string found = text().substr(begin, at_ - begin);
    const bool raw =
        found == "R" || found == "LR" || found == "uR" || found == "UR" || found == "u8R";
    if (raw && ahead(0) == '"') return fail(" has no raw strings", begin);
    push(Kind::word, std::move(found), begin);
  }

  void literal() {
    const size_t begin = at_;
    const char quote = text()[at_++];
    while (at_ < text().size() && text()[at_] != quote && text()[at_] != '\n') {
      at_ += text()[at_] == '\\' ? 2 : 1;
    }
    if (ahead(0) != quote) {
      return fail(" ends each literal in its line, with the quote that begins it", begin);
    }
    ++at_;
    push(Kind::literal, std::string(1, quote), begin);
  }

  void mark() {
    const size_t begin = at_;
    const auto hash = [this] {
      const size_t length = ahead(0) == '#' ? 1 : ahead(0) == '%' && ahead(1) == ':' ? 2 : 0;
      at_ += length;
      return length;
    };
    if (text()[at_] == '\\') return fail(" has a backslash only in literals", begin);
    const size_t first = hash();
    if (first == 0) return push(Kind::mark, std::string(1, text()[at_++]), begin);
    const bool same = first == 1 ? ahead(0) == '#' : ahead(0) == '%';  // no ## of two spellings
    push(Kind::mark, same && hash() > 0 ? "##" : "#", begin);
  }

  const char* subject_;
  Spliced spliced_;
  ModTokens out_;
  size_t at_ = 0;
  bool first_ = true, directive_ = false;
};

}  // namespace

ModTokens read_mod(std::string_view text, const char* subject) {
  return Reader(text, subject).take();
}

int line_that_is_not_utf8(std::string_view text) {
  int line = 1;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n') ++line;
    const size_t bytes = utf8_bytes(text, at);
    if (bytes == 0) return line;
    at += bytes;
  }
  return 0;
}

}  // namespace lathe
