// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/clock/listing.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string_view>

#include "sim/clock/opcodes.h"

namespace sim::clock {
namespace {

struct Control {
  uint8_t stall, writes, reads, waits;
};
Control control_of(uint64_t high_word) {
  const auto bits = static_cast<uint32_t>(high_word >> 41);
  return {static_cast<uint8_t>(bits & 15), static_cast<uint8_t>(bits >> 5 & 7),
          static_cast<uint8_t>(bits >> 8 & 7), static_cast<uint8_t>(bits >> 11 & 63)};
}

// Returns the 64-bit word in a comment of 16 hexadecimal digits.
bool word_in(std::string_view line, uint64_t* word) {
  const size_t at = line.rfind("/* 0x");
  if (at == std::string_view::npos || line.size() < at + 21) return false;
  *word = std::strtoull(std::string(line.substr(at + 5, 16)).c_str(), nullptr, 16);
  return true;
}

bool number_after(std::string_view line, std::string_view words, int* number) {
  const size_t at = line.find(words);
  if (at == std::string_view::npos) return false;
  *number = std::atoi(std::string(line.substr(at + words.size(), 12)).c_str());
  return true;
}

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

struct Reader {
  std::istringstream in;
  Program program;
  std::map<std::string, uint32_t> labels;
  std::vector<std::pair<uint32_t, std::string>> jumps;
  int line = 0;

  // Leaves the stream behind the line that begins the kernel's code.
  bool find(const std::string& kernel) {
    const std::string begin = ".text." + kernel + ":";
    for (std::string text; std::getline(in, text);) {
      if (text == begin) return true;
    }
    return false;
  }

  // An instruction is two lines: its words of 64 bits stand behind its text and below it.
  bool instruction(const std::string& text) {
    const size_t end = text.find("*/"), words = text.rfind("/*");
    std::string next;
    uint64_t low = 0, high = 0;
    if (end == std::string::npos || words <= end || !word_in(text, &low)) return false;
    if (!std::getline(in, next) || !word_in(next, &high)) return false;
    std::string body = trimmed(std::string_view(text).substr(end + 2, words - end - 2));
    while (!body.empty() && (body.back() == ';' || body.back() == ' ')) body.pop_back();
    Op op = decode_machine(body);
    count_bank_reads(&op, program.ops.empty() ? nullptr : &program.ops.back());
    const Control control = control_of(high);
    op.line = line;
    op.stall = std::max<uint8_t>(1, control.stall);
    op.writes = control.writes;
    op.reads = control.reads;
    op.waits = control.waits;
    const size_t label = body.find("`(");
    if (label != std::string::npos && (op.kind == OpKind::branch || op.kind == OpKind::call)) {
      jumps.emplace_back(static_cast<uint32_t>(program.ops.size()),
                         body.substr(label + 2, body.find(')', label) - label - 2));
    }
    program.ops.push_back(std::move(op));
    return true;
  }

  void read() {
    for (std::string text; std::getline(in, text);) {
      if (text.starts_with("//---")) return;  // the next section
      if (text.starts_with(".L_") && text.back() == ':') {
        labels[text.substr(0, text.size() - 1)] = static_cast<uint32_t>(program.ops.size());
      } else if (!number_after(text, "\", line ", &line) && text.find("/*") != std::string::npos) {
        instruction(text);
      }
    }
  }
};

}  // namespace

Program read_listing(const std::string& listing, const std::string& kernel, std::string* why) {
  Reader reader;
  reader.in.str(listing);
  if (!reader.find(kernel)) {
    *why = "nvdisasm's listing has no kernel " + kernel;
    return {};
  }
  reader.read();
  for (const auto& [from, label] : reader.jumps) {
    const auto to = reader.labels.find(label);
    if (to == reader.labels.end() || to->second >= reader.program.ops.size()) continue;
    reader.program.ops[from].target = to->second;
    reader.program.ops[from].targets = {to->second};
  }
  const auto& ops = reader.program.ops;
  if (std::none_of(ops.begin(), ops.end(), [](const Op& op) { return op.line > 0; })) {
    *why = "nvdisasm's listing has no lines of PTX";
    return {};
  }
  reader.program.machine_code = true;
  return std::move(reader.program);
}

}  // namespace sim::clock
