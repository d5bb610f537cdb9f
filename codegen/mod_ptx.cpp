// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/mod_ptx.h"

#include <algorithm>
#include <utility>

#include "codegen/base/letters.h"

namespace lathe {
namespace {

constexpr char kMarked = '\x01';  // kPtxMark, once comments are gone
constexpr std::string_view kBlanks = " \t\n\v\f\r";

bool is_name(char letter) {
  return is_alphanumeric(letter) || letter == '_' || letter == '$' || letter == '%';
}

std::string without_comments(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (text.starts_with("//")) {
      text.remove_prefix(std::min(text.find('\n'), text.size()));
    } else if (text.starts_with("/*")) {
      if (text.starts_with(kPtxMark)) out += kMarked;
      const size_t end = text.find("*/", 2);
      text.remove_prefix(end == text.npos ? text.size() : end + 2);
      out += ' ';
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

void skip_blanks(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
}

// Takes a name from the front; empty if there is none.
std::string_view take_name(std::string_view& text) {
  const std::string_view name = ptx_name(text);
  text.remove_prefix(name.size());
  return name;
}

std::string_view take_to(std::string_view& text, size_t end) {
  const std::string_view out = text.substr(0, end);
  text.remove_prefix(std::min(end == text.npos ? end : end + 1, text.size()));
  return out;
}

class Reader {
 public:
  explicit Reader(Ptx* out) : out_(*out), rest_(out->code) {}

  void read() {
    for (skip_blanks(rest_); !rest_.empty(); skip_blanks(rest_)) step();
  }

 private:
  void step() {
    const char letter = rest_.front();
    if (letter == '{' || letter == '}' || letter == ';') {
      rest_.remove_prefix(1);
    } else if (letter == kMarked) {
      marked_ = true;
      rest_.remove_prefix(1);
    } else if (letter == '.') {
      directive();
    } else if (!label()) {
      instruction(take_to(rest_, rest_.find(';')));
    }
  }

  bool label() {
    std::string_view after = rest_;
    if (take_name(after).empty()) return false;
    skip_blanks(after);
    if (!after.starts_with(':')) return false;
    rest_ = after.substr(1);
    return true;
  }

  // Most end with a semicolon, some with their line, and a function has its body in braces.
  void directive() {
    for (const char* word : {".version", ".target", ".address_size", ".loc", ".file"}) {
      if (rest_.starts_with(word)) return void(take_to(rest_, rest_.find('\n')));
    }
    if (rest_.starts_with(".section")) return void(take_to(rest_, rest_.find('}')));
    size_t end = rest_.find_first_of(";{");
    std::string_view head = rest_.substr(0, end);
    if (head.find('=') != head.npos) end = rest_.find(';');  // the braces are of values
    const bool body = end < rest_.size() && rest_[end] == '{';
    head = take_to(rest_, end);
    if (head.starts_with(".extern") && out_.outside.empty()) {
      out_.outside = head.substr(0, head.find('\n'));
    }
    if (body) out_.functions.emplace_back();
    if (head.starts_with(".reg")) registers(head);
    if (head.find(".func") != head.npos || head.find(".entry") != head.npos) return;
    variable(head);
  }

  // Reads ".reg .b32 %r<5>" or ".reg .pred p, q".
  void registers(std::string_view head) {
    if (out_.functions.empty()) return;
    head.remove_prefix(std::min(head.find_first_of(" \t"), head.size()));
    for (skip_blanks(head); head.starts_with('.'); skip_blanks(head)) {
      head.remove_prefix(1);
      take_name(head);
    }
    while (!head.empty()) {
      const std::string_view name = take_name(head);
      if (!name.empty()) out_.functions.back().registers.insert(name);
      head.remove_prefix(std::min(head.find(','), head.size()));
      if (!head.empty()) head.remove_prefix(1);
      skip_blanks(head);
    }
  }

  // ".visible .global .align 4 .b8 name[24] = {...}": the name is before the bracket or the value.
  void variable(std::string_view head) {
    const bool constant = head.find(".const") != head.npos;
    if (!constant && head.find(".global") == head.npos) return;
    head = head.substr(0, head.find_first_of("[="));
    while (!head.empty() && !is_name(head.back())) head.remove_suffix(1);
    size_t begin = head.size();
    while (begin > 0 && is_name(head[begin - 1])) --begin;
    (constant ? out_.constants : out_.globals).insert(head.substr(begin));
  }

  void instruction(std::string_view text) {
    PtxInstruction found;
    found.marked = std::exchange(marked_, false);
    if (text.starts_with('@')) {  // "@%p1 bra", "@!p st"
      text.remove_prefix(1);
      skip_blanks(text);
      if (text.starts_with('!')) text.remove_prefix(1);
      skip_blanks(text);
      take_name(text);
      skip_blanks(text);
    }
    found.opcode = text.substr(0, text.find_first_of(kBlanks));
    found.operands = text.substr(found.opcode.size());
    if (out_.functions.empty()) out_.functions.emplace_back();
    out_.functions.back().instructions.push_back(found);
  }

  Ptx& out_;
  std::string_view rest_;
  bool marked_ = false;
};

}  // namespace

std::string_view ptx_name(std::string_view text) {
  return {text.begin(), std::find_if_not(text.begin(), text.end(), is_name)};
}

void read_ptx(std::string_view text, Ptx* out) {
  *out = Ptx();
  out->code = without_comments(text);
  Reader(out).read();
}

}  // namespace lathe
