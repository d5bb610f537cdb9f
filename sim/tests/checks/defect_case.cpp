// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/tests/checks/defect_case.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace sim::test {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

void read_settings(const std::string& text, std::map<std::string, int>* out) {
  for (const std::string& word : words(text)) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw std::runtime_error("no '=' in " + word);
    (*out)[word.substr(0, equals)] = std::stoi(word.substr(equals + 1));
  }
}

std::set<AsyncPolicy> policies_of(const std::string& text) {
  std::set<AsyncPolicy> all;
  for (const std::string& word : words(text)) {
    if (word != "eager" && word != "lazy" && word != "random") {
      throw std::runtime_error("policies: " + word);
    }
    all.insert(word == "eager"  ? AsyncPolicy::eager
               : word == "lazy" ? AsyncPolicy::lazy
                                : AsyncPolicy::random);
  }
  return all;
}

// One line of the header: `// name: value`. Prose is passed over.
void read_directive(const std::string& line, DefectCase* c) {
  const size_t colon = line.find(": ");
  if (colon == std::string::npos || colon < 3) return;
  const std::string name = line.substr(3, colon - 3), value = line.substr(colon + 2);
  if (name == "check") c->check = value;
  if (name == "kind") c->kind = value;
  if (name == "error") c->error = std::stoi(value);
  if (name == "error without checks") {
    c->unchecked_errors.clear();
    for (const std::string& word : words(value)) c->unchecked_errors.insert(std::stoi(word));
  }
  if (name == "seeds") c->some_seeds = value == "some";
  if (name == "policies") c->policies = policies_of(value);
  if (name == "lines") c->any_line = value == "any";
  if (name == "also") c->also = words(value);
  if (name == "text") c->texts.push_back(value);
  if (name == "launch") read_settings(value, &c->launch);
  if (name == "repaired launch") read_settings(value, &c->repaired_launch);
  if (name == "parameters") c->parameters = words(value);
  if (name == "entry") c->entry = value;
  if (name == "index") c->grid_index = value == "grid";
  if (name == "wgmma") c->wgmma_tiles = value == "tiles";
  if (name != "expect") return;
  const size_t equals = value.find(" = "), comma = value.find(", i < ");
  if (equals == std::string::npos || comma == std::string::npos) {
    throw std::runtime_error("expect: " + value);
  }
  c->expression = value.substr(equals + 3, comma - equals - 3);
  c->count = std::stoi(value.substr(comma + 6));
}

// Says whether a line, without its mark, declares something: variables of the module or the kernel.
bool declares(const std::string& line) {
  const size_t mark = line.find("//+ ");
  const size_t at = line.find_first_not_of(' ', mark == std::string::npos ? 0 : mark + 4);
  return at != std::string::npos && line[at] == '.';
}

std::string entry_of(const DefectCase& c) {
  std::string list;
  for (const std::string& name : c.parameters) {
    list += (list.empty() ? "" : ", ");
    list += name == "map" ? ".param .align 64 .b8 map[128]" : ".param .u64 " + name;
  }
  return ".visible .entry k(" + list + ") " + c.entry +
         " { .reg .pred %p, %q, %e; .reg .b16 %h<4>;"
         " .reg .b32 %t, %i, %base, %s, %n, %k, %v<16>;"
         " .reg .b64 %in, %out, %a, %b, %off, %w<16>;";
}

// Returns what sets the registers that README.md names. `shared` holds the kernel's declarations.
std::string prologue_of(const DefectCase& c, const std::string& shared) {
  std::string input;  // `in`, or what is in its place
  for (const std::string& name : c.parameters) {
    if (name == "in" || (input.empty() && name != "out" && name != "map")) input = name;
  }
  std::string text = " mov.u32 %t, %tid.x;";
  if (c.grid_index) {
    text += " mov.u32 %v0, %ctaid.x; mov.u32 %v1, %ntid.x; mad.lo.u32 %i, %v0, %v1, %t;";
  }
  if (!input.empty()) text += " ld.param.u64 %in, [" + input + "];";
  text += " ld.param.u64 %out, [out];";
  text += c.grid_index ? " mul.wide.u32 %off, %i, 4;" : " mul.wide.u32 %off, %t, 4;";
  if (!input.empty()) text += " add.u64 %a, %in, %off;";
  text += " add.u64 %b, %out, %off;";
  if (shared.find(" s[") != std::string::npos) {
    text += " mov.u32 %base, s; mad.lo.u32 %s, %t, 4, %base;";
  }
  if (shared.find(" bar[") != std::string::npos) {
    text += " mov.u32 %n, bar; setp.eq.u32 %e, %t, 0;";
  }
  if (!c.wgmma_tiles) return text;
  return text +
         " .reg .f32 %d<4>; mov.u32 %v0, 0x3F803F80; mov.f32 %d0, 0f3F800000;"
         " mov.f32 %d1, %d0; mov.f32 %d2, %d0; mov.f32 %d3, %d0;"
         " cvt.u64.u32 %w0, %base; shr.u64 %w0, %w0, 4;"
         " or.b64 %w1, %w0, 0x0000000800400000; add.u64 %w2, %w0, 128;"
         " or.b64 %w2, %w2, 0x0000000800080000; setp.ge.u32 %p, %t, 0;";
}

// Writes the frame around the lines of a file that begins with `header` lines of comments, in their
// place, so that every line keeps its number.
std::string framed(const DefectCase& c, std::vector<std::string> lines, size_t header,
                   size_t module_end, size_t first) {
  const auto extend = [&lines](size_t at, const std::string& by) {
    lines[at] = lines[at].substr(0, lines[at].find("//")) + by;
  };
  std::string shared;
  for (size_t at = module_end; at < first; ++at) {
    shared += lines[at].substr(0, lines[at].find("//"));
  }
  std::fill(lines.begin(), lines.begin() + static_cast<ptrdiff_t>(header), "");
  lines[0] = ".version 8.6 .target sm_90a .address_size 64";
  extend(module_end - 1, entry_of(c));
  extend(first - 1, prologue_of(c, shared));
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text + "  ret;\n}\n";
}

// Precedence climbing over C's operators, all on int64_t.
class Parser {
 public:
  Parser(const std::string& text, int64_t i, const std::vector<uint32_t>& in)
      : text_(text), i_(i), in_(in) {}
  int64_t all() {
    const int64_t v = conditional();
    if (peek()) throw std::runtime_error("cannot read " + text_.substr(at_));
    return v;
  }

 private:
  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(const std::string& word) {
    peek();
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  void need(const std::string& word) {
    if (!take(word)) throw std::runtime_error("no " + word + " in " + text_);
  }
  int64_t conditional() {
    const int64_t condition = binary(0);
    if (!take("?")) return condition;
    const int64_t yes = conditional();
    need(":");
    const int64_t no = conditional();
    return condition ? yes : no;
  }
  int64_t binary(size_t level) {
    static const std::vector<std::vector<std::string>> kLevels = {
        {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">"}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == kLevels.size()) return primary();
    int64_t v = binary(level + 1);
    for (bool found = true; found;) {
      found = false;
      for (const std::string& op : kLevels[level]) {
        if (!take(op)) continue;
        v = apply(op, v, binary(level + 1));
        found = true;
        break;
      }
    }
    return v;
  }
  static int64_t apply(const std::string& op, int64_t a, int64_t b) {
    if (op == "==") return a == b;
    if (op == "!=") return a != b;
    if (op == "<<") return a << b;
    if (op == ">>") return a >> b;
    switch (op[0]) {
      case '|':
        return a | b;
      case '^':
        return a ^ b;
      case '&':
        return a & b;
      case '<':
        return a < b;
      case '>':
        return a > b;
      case '+':
        return a + b;
      case '-':
        return a - b;
      case '*':
        return a * b;
      case '/':
        return a / b;
      default:
        return a % b;
    }
  }
  int64_t primary() {
    if (take("(")) {
      const int64_t v = conditional();
      need(")");
      return v;
    }
    if (take("in[")) {
      const int64_t k = conditional();
      need("]");
      const auto at = static_cast<size_t>(k);  // both sides of ?: are evaluated
      return at < in_.size() ? in_[at] : 0;
    }
    if (take("i")) return i_;
    size_t used = 0;
    const int64_t v = std::stoll(text_.substr((peek(), at_)), &used, 0);
    at_ += used;
    return v;
  }

  const std::string& text_;
  const int64_t i_;
  const std::vector<uint32_t>& in_;
  size_t at_ = 0;
};

}  // namespace

int64_t evaluate(const std::string& expression, int64_t i, const std::vector<uint32_t>& in) {
  return Parser(expression, i, in).all();
}

DefectCase read_defect(const std::string& path, const std::string& check) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  DefectCase c;
  c.path = path;
  c.check = c.folder = check;
  std::vector<std::string> whole, defective, repaired;
  size_t header = 0;
  for (std::string line; std::getline(file, line);) {
    if (header == whole.size() && line.rfind("//", 0) == 0 && line.rfind("//+", 0) != 0) {
      ++header;
      read_directive(line, &c);
    }
    whole.push_back(line);
    const int number = static_cast<int>(whole.size());
    if (ends_with(line, "// DEFECT") || ends_with(line, "//- DEFECT")) c.lines.push_back(number);
    if (ends_with(line, "// OTHER") || ends_with(line, "//- OTHER")) c.other_line = number;
    const size_t added = line.find("//+ ");
    const bool dropped = line.find("//-") != std::string::npos;
    defective.push_back(line);
    repaired.push_back(added != std::string::npos ? line.substr(added + 4) : dropped ? "" : line);
  }
  if (c.kind.empty()) throw std::runtime_error(path + " states no kind");
  if (defective == repaired && c.repaired_launch.empty()) {
    throw std::runtime_error(path + " has no repair");
  }
  // Functions of the module end with a brace in the first column, and kernels without one.
  const auto brace = std::find(whole.rbegin(), whole.rend(), "}");
  size_t module_end = std::max(header, static_cast<size_t>(whole.rend() - brace));
  while (declares(whole.at(module_end)) && whole[module_end][0] != ' ') ++module_end;
  size_t first = module_end;
  while (declares(whole.at(first))) ++first;
  c.defective = framed(c, std::move(defective), header, module_end, first);
  c.repaired = framed(c, std::move(repaired), header, module_end, first);
  return c;
}

}  // namespace sim::test
