// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These edits of PTX text take one wait, fence, commit, arrival or expectation away. The places are
// found by opcode, so that none is forgotten.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace sim::test {

struct Mutation {
  std::string what;    // the rule's name
  std::string before;  // the line as it was
  int line = 0;        // counted from one
  std::string ptx;     // the whole text, edited
  std::string kinds;   // kinds of finding that are right, "check/kind check/kind"
  std::string says;    // and what its text contains
};

// A rule says what is done with a line that has `opcode`.
struct MutationRule {
  const char* name;
  const char* opcode;  // text the line contains
  const char* other;   // text it must not contain; empty: none
  std::function<std::string(const std::string& line)> edit;
  const char* kinds;
  const char* says = "";
};

// Sets the first operand, a register, to true: the wait never waits.
inline std::string always_true(const std::string& line) {
  const size_t end = line.find(','), begin = line.find_last_of(" \t", end) + 1;
  return "setp.eq.u32 " + line.substr(begin, end - begin) + ", 0, 0;";
}

inline std::string nothing(const std::string&) { return ""; }

inline std::function<std::string(const std::string&)> replace(std::string from, std::string to) {
  return [from, to](const std::string& line) {
    std::string text = line;
    return text.replace(text.find(from), from.size(), to);
  };
}

// Makes the last operand `value`.
inline std::function<std::string(const std::string&)> last_operand(std::string value) {
  return [value](const std::string& line) {
    return line.substr(0, line.find_last_of(", \t", line.find(';')) + 1) + value + ";";
  };
}

inline std::string without_last_operand(const std::string& line) {
  return line.substr(0, line.find_last_of(',')) + ";";
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

inline bool has_instruction(const std::string& line, const std::string& text) {
  const size_t comment = line.find("//"), at = line.find(text);
  return at != std::string::npos && at < comment;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Returns every rule at every line that it fits.
inline std::vector<Mutation> mutations(const std::string& ptx,
                                       const std::vector<MutationRule>& rules) {
  const std::vector<std::string> lines = lines_of(ptx);
  std::vector<Mutation> all;
  for (size_t k = 0; k < lines.size(); ++k) {
    for (const MutationRule& rule : rules) {
      if (!has_instruction(lines[k], rule.opcode)) continue;
      if (*rule.other && has_instruction(lines[k], rule.other)) continue;
      std::vector<std::string> edited = lines;
      edited[k] = rule.edit(lines[k]);
      all.push_back(
          {rule.name, lines[k], static_cast<int>(k + 1), joined(edited), rule.kinds, rule.says});
    }
  }
  return all;
}

// Removes each line with `first` together with the next one that has `second`; `kinds` are in
// order.
inline std::vector<Mutation> without_pairs(const std::string& ptx, const std::string& first,
                                           const std::string& second,
                                           const std::vector<std::string>& kinds) {
  const std::vector<std::string> lines = lines_of(ptx);
  std::vector<Mutation> all;
  for (size_t k = 0; k < lines.size(); ++k) {
    if (!has_instruction(lines[k], first)) continue;
    std::vector<std::string> edited = lines;
    edited[k].clear();
    size_t j = k + 1;
    while (j < lines.size() && !has_instruction(lines[j], second)) ++j;
    if (j < lines.size()) edited[j].clear();
    const std::string expected = all.size() < kinds.size() ? kinds[all.size()] : "";
    all.push_back({"no pair", lines[k], static_cast<int>(k + 1), joined(edited), expected, ""});
  }
  return all;
}

}  // namespace sim::test
