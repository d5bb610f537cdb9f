// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/code/machine_code.h"

#include <algorithm>
#include <optional>
#include <ranges>

#include "codegen/base/text.h"

namespace lathe::cli {
namespace {

constexpr std::string_view kHex = "0123456789abcdefABCDEF";
constexpr size_t kMostRuns = 16;

std::string_view without(std::string_view text, std::string_view characters) {
  text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
  return text;
}

// "HGMMA.64x8x16.F32" of "  /*0110*/   @!P0 HGMMA.64x8x16.F32 R24, ... ;". A brace opens a pair of
// instructions that are issued at once.
std::optional<std::string_view> instruction_in(std::string_view line) {
  constexpr std::string_view kBlanks = " \t{";
  line = without(line, kBlanks);
  if (!line.starts_with("/*")) return std::nullopt;
  line.remove_prefix(2);
  const std::string_view rest = without(line, kHex);
  if (rest.size() == line.size() || !rest.starts_with("*/")) return std::nullopt;
  line = without(rest.substr(2), kBlanks);
  if (line.starts_with('@')) {
    line = without(line.substr(std::min(line.find(' '), line.size())), kBlanks);
  }
  const std::string_view name = line.substr(0, line.find_first_of(" ;\t"));
  if (name.empty()) return std::nullopt;
  return name;
}

// "8 x3, 4": three groups of eight and one of four.
std::string runs_text(const std::vector<size_t>& groups) {
  std::string out;
  size_t runs = 0;
  for (size_t i = 0; i < groups.size();) {
    const size_t begin = i;
    while (i < groups.size() && groups[i] == groups[begin]) ++i;
    if (++runs > kMostRuns) return out + ", ...";
    out += text(out.empty() ? "" : ", ", groups[begin]);
    if (i - begin > 1) out += text(" x", i - begin);
  }
  return out;
}

}  // namespace

MachineCounts count_machine_code(std::string_view listing) {
  MachineCounts counts;
  size_t group = 0;
  const auto end_group = [&] {
    if (group > 0) counts.between_waits.push_back(group);
    group = 0;
  };
  for (const auto& each : std::views::split(listing, '\n')) {
    const auto name = instruction_in(std::string_view(each.begin(), each.end()));
    if (!name) continue;
    const std::string_view stem = name->substr(0, name->find('.'));
    if (stem == "NOP") continue;
    ++counts.instructions;
    const auto found = std::ranges::find(kCounted, stem);
    if (found != kCounted.end()) ++counts.of[static_cast<size_t>(found - kCounted.begin())];
    if (stem == "HGMMA") ++group;
    if (name->starts_with("WARPGROUP.DEPBAR")) end_group();
  }
  end_group();
  return counts;
}

std::string counts_text(const MachineCounts& counts) {
  const auto line = [](std::string_view name, const std::string& value) {
    return text("// ", name, std::string(14 - name.size(), ' '), value, "\n");
  };
  std::string out = line("instructions", text(counts.instructions));
  for (size_t i = 0; i < kCounted.size(); ++i) {
    const std::string_view name = kCounted[i];
    const bool grouped = name == "HGMMA" && !counts.between_waits.empty();
    const bool spill = name == "LDL" || name == "STL";
    out += line(name, text(counts.of[i], spill ? " (local memory: spills, stack)" : "",
                           grouped ? "; between waits (WARPGROUP.DEPBAR): " : "",
                           grouped ? runs_text(counts.between_waits) : ""));
  }
  return out;
}

}  // namespace lathe::cli
