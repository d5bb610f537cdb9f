// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/operators/chain.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "codegen/base/letters.h"

namespace bench {
namespace {

// Cycles from an instruction to one that needs its result: round numbers in the middle of what
// microbenchmarks of A100 and H100 have published (Sun et al. 2022, Luo et al. 2024).
constexpr double kArithmetic = 4, kConvert = 6, kMath = 20, kShuffle = 24, kShared = 30,
                 kMatrixLoad = 33, kProduct = 33, kGlobal = 600;

struct Statement {
  int line = 0;
  std::string text;
  bool label = false;
};

bool starts(std::string_view text, std::string_view with) {
  return text.substr(0, with.size()) == with;
}
bool is_name(char c) {
  return lathe::is_alphanumeric(c) || c == '_' || c == '%' || c == '$' || c == '.';
}

// Returns instructions and labels, without comments, directives and braces around them.
std::vector<Statement> statements(const std::string& ptx) {
  std::vector<Statement> all;
  int line = 1;
  for (size_t i = 0; i < ptx.size();) {
    const char c = ptx[i];
    if (c == '\n') {
      ++line, ++i;
    } else if (lathe::is_space(c) || c == '{' || c == '}' || c == '(' || c == ')' || c == ';') {
      ++i;
    } else if (ptx.compare(i, 2, "//") == 0) {
      i = std::min(ptx.find('\n', i), ptx.size());
    } else if (c == '.') {
      i = std::min(ptx.find_first_of(";\n", i), ptx.size());
    } else {
      Statement one;
      one.line = line;
      for (; i < ptx.size() && ptx[i] != ';'; ++i) {
        if (ptx.compare(i, 2, "//") == 0) i = std::min(ptx.find('\n', i), ptx.size() - 1);
        line += ptx[i] == '\n';
        one.text += ptx[i] == '\n' ? ' ' : ptx[i];
        const bool at_end = ptx[i] == ':' && (i + 1 == ptx.size() || lathe::is_space(ptx[i + 1]));
        if (!at_end) continue;
        one.label = true;
        break;
      }
      ++i;
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::vector<std::string_view> names_in(std::string_view text) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && is_name(text[end])) ++end;
    if (end == i) {
      ++i;
      continue;
    }
    if (!lathe::is_digit(text[i])) names.push_back(text.substr(i, end - i));
    i = end;
  }
  return names;
}

struct Parsed {
  std::string_view op;
  std::vector<std::string_view> results, sources;
  bool group = false;  // operands in braces
};

bool has_result(std::string_view op) {
  for (const char* none : {"st.", "red.", "bar", "bra", "ret", "exit", "membar", "fence",
                           "cp.async", "prefetch", "mbarrier", "trap", "call", "stmatrix"}) {
    if (starts(op, none)) return false;
  }
  return true;
}

Parsed parse(std::string_view text) {
  Parsed out;
  size_t at = 0;
  if (text[0] == '@') {  // a guard is a source
    at = text.find(' ');
    out.sources = names_in(text.substr(1, at - 1));
    at = text.find_first_not_of(" \t", at);
  }
  const size_t end = std::min(text.find_first_of(" \t", at), text.size());
  out.op = text.substr(at, end - at);
  std::string_view operands = text.substr(end);
  out.group = operands.find('{') != operands.npos;
  size_t split = 0;
  if (has_result(out.op)) {
    const size_t first = operands.find_first_not_of(" \t");
    const bool braces = first != operands.npos && operands[first] == '{';
    split = std::min(operands.find(braces ? '}' : ',', first), operands.size());
    out.results = names_in(operands.substr(0, split));
  }
  for (const auto name : names_in(operands.substr(split))) out.sources.push_back(name);
  return out;
}

bool is_barrier(std::string_view op) {
  return starts(op, "bar.sync") || starts(op, "barrier") || starts(op, "cp.async.wait");
}

struct Time {
  double issue = 1, latency = kArithmetic;
};
Time time_of(const Parsed& p) {
  const auto any = [&](std::initializer_list<const char*> list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const char* with) { return starts(p.op, with); });
  };
  if (any({"mov.", "cvta."})) return p.group ? Time{1, kArithmetic} : Time{0, 0};
  if (any({"ld.param", "ld.const"})) return {0, 0};  // operands of what uses them
  if (any({"ld.shared"})) return {1, kShared};
  if (any({"ldmatrix"})) return {1, kMatrixLoad};
  if (any({"ld.", "atom."})) return {1, kGlobal};
  if (any({"mma.", "wgmma."})) return {1, kProduct};
  if (any({"shfl.", "vote.", "match.", "redux.", "movmatrix.", "activemask"})) return {1, kShuffle};
  if (any({"ex2.", "lg2.", "rcp.", "rsqrt.", "sqrt.", "sin.", "cos.", "tanh.", "div."})) {
    return {1, kMath};
  }
  if (any({"cvt."})) return {1, kConvert};
  return {};
}

struct Instruction {
  int line = 0;
  Parsed parsed;
  bool cut_before = false, cut_behind = false;
};

// The views are into `code`.
std::vector<Instruction> instructions(const std::vector<Statement>& code) {
  std::unordered_map<std::string_view, size_t> labels;  // which instruction they stand before
  std::vector<Instruction> all;
  for (const Statement& statement : code) {
    if (statement.label) {
      labels[std::string_view(statement.text).substr(0, statement.text.find(':'))] = all.size();
      continue;
    }
    all.push_back({statement.line, parse(statement.text)});
    const Parsed& p = all.back().parsed;
    if (is_barrier(p.op)) all.back().cut_behind = true;
    if (!starts(p.op, "bra") || p.sources.empty()) continue;
    const auto target = labels.find(p.sources.back());
    if (target == labels.end()) continue;  // forward
    all[target->second].cut_before = true;
    all.back().cut_behind = true;
  }
  return all;
}

// Tells when a register's value is there, and how much of that was waiting for global memory.
struct Ready {
  double at = 0, global = 0;
};

Stretch measured(const Instruction* begin, const Instruction* end,
                 const std::map<int, uint64_t>& executions, double warps) {
  const auto ran = [&](const Instruction& one) {
    const auto found = executions.find(one.line);
    return found == executions.end() ? 0 : found->second;
  };
  uint64_t most = 0;
  for (const Instruction* one = begin; one != end; ++one) most = std::max(most, ran(*one));
  Stretch out = {begin->line, (end - 1)->line};
  out.times = static_cast<double>(most) / warps;
  std::unordered_map<std::string_view, Ready> ready;
  for (const Instruction* one = begin; one != end; ++one) {
    if (2 * ran(*one) < most || most == 0) continue;
    const Time time = time_of(one->parsed);
    Ready from;
    for (const auto name : one->parsed.sources) {
      const auto found = ready.find(name);
      if (found != ready.end() && found->second.at > from.at) from = found->second;
    }
    const Ready there = {from.at + time.latency,
                         from.global + (time.latency == kGlobal ? kGlobal : 0)};
    for (const auto name : one->parsed.results) ready[name] = there;
    out.issue += time.issue;
    if (there.at > out.path) out.path = there.at, out.global = there.global;
  }
  return out;
}

}  // namespace

std::vector<Stretch> stretches(const std::string& ptx, const std::map<int, uint64_t>& executions,
                               double warps) {
  const std::vector<Statement> text = statements(ptx);
  const std::vector<Instruction> code = instructions(text);
  std::vector<Stretch> all;
  for (size_t begin = 0, i = 0; i < code.size(); ++i) {
    const bool cut = code[i].cut_behind || i + 1 == code.size() || code[i + 1].cut_before;
    if (!cut) continue;
    all.push_back(measured(&code[begin], &code[i] + 1, executions, warps));
    begin = i + 1;
  }
  return all;
}

double chain_cycles(const std::vector<Stretch>& code, double warps_of_scheduler) {
  double cycles = 0;
  for (const Stretch& each : code) {
    cycles += each.times * std::max(each.path, warps_of_scheduler * each.issue);
  }
  return cycles;
}

double chain_issue(const std::vector<Stretch>& code) {
  double issued = 0;
  for (const Stretch& each : code) issued += each.times * each.issue;
  return issued;
}

Residence residence(const BlockNeeds& needs, double blocks, int multiprocessors,
                    int shared_bytes_per_multiprocessor, int registers_per_multiprocessor) {
  constexpr int kThreads = 2048, kReserved = 1024;  // of a multiprocessor; shared, of a block
  int most = kThreads / std::max(1, needs.threads);
  most = std::min(most, shared_bytes_per_multiprocessor / (needs.shared_bytes + kReserved));
  if (needs.registers > 0) {
    most = std::min(most, registers_per_multiprocessor / (needs.registers * needs.threads));
  }
  const double each = std::ceil(blocks / multiprocessors);
  Residence out;
  out.resident = static_cast<int>(std::clamp<double>(each, 1, std::max(1, most)));
  out.rounds = std::ceil(each / out.resident);
  return out;
}

}  // namespace bench
