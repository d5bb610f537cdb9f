// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/tests/checks/defect_case.h"

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
  if (name != "expect") return;
  const size_t equals = value.find(" = "), comma = value.find(", i < ");
  if (equals == std::string::npos || comma == std::string::npos) {
    throw std::runtime_error("expect: " + value);
  }
  c->expression = value.substr(equals + 3, comma - equals - 3);
  c->count = std::stoi(value.substr(comma + 6));
}

// Returns the names between the parentheses of `.entry k( ... )`.
std::vector<std::string> parameter_names(const std::string& text) {
  std::vector<std::string> names;
  const size_t begin = text.find(".entry k(");
  if (begin == std::string::npos) return names;
  std::istringstream list(text.substr(begin + 9, text.find(')', begin) - begin - 9));
  for (std::string one; std::getline(list, one, ',');) {
    const std::string last = words(one).back();
    names.push_back(last.substr(0, last.find('[')));
  }
  return names;
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
  bool header = true;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    header = header && line.rfind("//", 0) == 0;
    if (header) read_directive(line, &c);
    if (ends_with(line, "// DEFECT") || ends_with(line, "//- DEFECT")) c.lines.push_back(number);
    if (ends_with(line, "// OTHER") || ends_with(line, "//- OTHER")) c.other_line = number;
    const size_t added = line.find("//+ ");
    const bool dropped = line.find("//-") != std::string::npos;
    c.defective += line + "\n";
    c.repaired += (added != std::string::npos ? line.substr(added + 4) : dropped ? "" : line);
    c.repaired += "\n";
  }
  c.parameters = parameter_names(c.defective);
  if (c.kind.empty()) throw std::runtime_error(path + " states no kind");
  if (c.defective == c.repaired && c.repaired_launch.empty()) {
    throw std::runtime_error(path + " has no repair");
  }
  return c;
}

}  // namespace sim::test
