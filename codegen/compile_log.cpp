// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/compile_log.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "codegen/base/printable.h"
#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr std::string_view kPtxas = "ptxas", kLoss = "Potential Performance Loss";
constexpr std::string_view kDigits = "0123456789";
constexpr size_t kMostCharacters = 240;                     // of a remark as ptxas writes it
constexpr size_t kMostPrintable = 4 * kMostCharacters + 3;  // each as \\xNN, and "..."
constexpr std::string_view kUnknown = "?";

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

std::optional<int> number_in(std::string_view digits) {
  int value = -1;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

// Words of ptxas -v are matched loosely and numbers strictly: a log in another language or layout
// gives -1, never a failed compile.

// The number that stands before `what` in `line`, as in "512 bytes smem"; -1 if there is none.
int number_before(std::string_view line, std::string_view what) {
  const size_t at = line.find(what);
  if (at == line.npos) return -1;
  line = line.substr(0, at);
  line = line.substr(0, line.find_last_not_of(' ') + 1);
  return number_in(line.substr(line.find_last_not_of(kDigits) + 1)).value_or(-1);
}

// A hostile log must not overflow a sum.
int sum_of(int a, int b) {
  return static_cast<int>(std::min<int64_t>(int64_t{a} + b, std::numeric_limits<int>::max()));
}

void add(int value, int* sum) {
  if (value >= 0) *sum = sum_of(std::max(*sum, 0), value);
}

// A line about the kernel, or about a function that it calls.
void read_figures(std::string_view line, CompileReport* report) {
  if (contains(line, "stack frame")) {
    report->stack_bytes = std::max(report->stack_bytes, number_before(line, "bytes stack frame"));
    add(number_before(line, "bytes spill stores"), &report->spill_stores);
    add(number_before(line, "bytes spill loads"), &report->spill_loads);
  }
  const int registers = number_before(line, "registers");
  if (registers >= 0 && contains(line, "Used")) {
    report->registers = registers;
    // ptxas leaves out what is zero.
    report->barriers = std::max(0, number_before(line, "barriers"));
    report->smem_static = std::max(0, number_before(line, "bytes smem"));
  }
}

// Takes the code from the front of "(C7511) sentence"; "" if there is none.
std::string_view take_code(std::string_view* said) {
  if (!said->starts_with("(C")) return {};
  const size_t end = said->find_first_not_of(kDigits, 2);
  if (end == said->npos || end < 4 || end > 8 || (*said)[end] != ')') return {};
  const std::string_view code = said->substr(1, end - 1);
  said->remove_prefix(end + 1);
  said->remove_prefix(std::min(said->find_first_not_of(' '), said->size()));
  return code;
}

// "ptxas info    : (C7511) Potential Performance Loss: ...", with a position behind the name or
// without a code in some releases. A line that goes on with another has a point for the colon.
std::optional<Remark> remark_of(std::string_view line) {
  if (!line.starts_with(kPtxas)) return std::nullopt;
  const size_t head = line.find_first_not_of(' ', kPtxas.size()), colon = line.find(" : ");
  if (colon == line.npos || line[head] == '.') return std::nullopt;
  std::string_view said = line.substr(colon + 3);
  said.remove_prefix(std::min(said.find_first_not_of(' '), said.size()));
  const std::string_view code = take_code(&said);
  if (code.empty() && !said.starts_with(kLoss)) return std::nullopt;
  return Remark{std::string(code), escaped(said, kMostCharacters)};
}

// True for texts that differ in numbers alone: "around line 49" and "around line 55".
bool same_but_for_numbers(std::string_view a, std::string_view b) {
  const auto cut = [](std::string_view& text) {
    const size_t end = std::min(text.find_first_of(kDigits), text.size());
    const std::string_view words = text.substr(0, end);
    text.remove_prefix(std::min(text.find_first_not_of(kDigits, end), text.size()));
    return words;
  };
  while (!a.empty() && !b.empty()) {
    if (cut(a) != cut(b)) return false;
  }
  return a.empty() && b.empty();
}

void keep(Remark remark, std::vector<Remark>* remarks) {
  const auto same = std::ranges::find_if(*remarks, [&](const Remark& known) {
    return known.code == remark.code && same_but_for_numbers(known.text, remark.text);
  });
  if (same != remarks->end()) {
    ++same->lines;
  } else if (remarks->size() < kMostRemarks) {
    remarks->push_back(std::move(remark));
  } else if (is_loss(remark)) {
    const auto note = std::ranges::find_if_not(*remarks, is_loss);
    if (note != remarks->end()) *note = std::move(remark);
  }
}

}  // namespace

CompileReport parse_compile_log(std::string_view log) {
  CompileReport report;
  std::vector<Remark> remarks;  // They come before the line that names the kernel.
  bool inside = false, after_ptxas = false;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    const bool of_ptxas = line.starts_with(kPtxas);
    // Older releases indent the second line of a message, newer ones begin it with the name.
    const bool goes_on = after_ptxas && line.starts_with(' ');
    after_ptxas = of_ptxas;
    if (auto remark = remark_of(line)) {
      keep(std::move(*remark), &remarks);
    } else if (of_ptxas && contains(line, "Compiling entry function")) {
      inside = contains(line, "'entry'");
      if (inside) report = {};
    } else if (inside && (of_ptxas || goes_on)) {
      read_figures(line, &report);
    }
  }
  report.remarks = std::move(remarks);
  return report;
}

bool is_loss(const Remark& remark) {
  // Releases that write these codes with other words mean the same: setmaxnreg ignored (C7504,
  // C7508), wgmma serialised (C7509 to C7516).
  const int number = remark.code.empty() ? 0 : number_in(remark.code.substr(1)).value_or(0);
  return remark.text.starts_with(kLoss) || number == 7504 || (number >= 7508 && number <= 7516);
}

std::vector<std::string> losses(const CompileReport& report, int kept) {
  std::vector<std::string> out;
  for (const Remark& remark : report.remarks.value_or(std::vector<Remark>())) {
    if (is_loss(remark))
      out.push_back(text(remark.code, remark.code.empty() ? "" : " ", remark.text));
  }
  const int spills = sum_of(std::max(report.spill_stores, 0), std::max(report.spill_loads, 0));
  if (spills > kept) out.push_back(text(spills, " bytes of spills"));
  if (report.stack_bytes > kept)
    out.push_back(text("a stack frame of ", report.stack_bytes, " bytes"));
  return out;
}

// Fields are divided by blanks and remarks by tabs, which no printable text holds.
std::string remarks_text(const std::optional<std::vector<Remark>>& remarks) {
  if (!remarks) return std::string(kUnknown);
  std::string out;
  for (const Remark& each : *remarks) {
    out += text(out.empty() ? "" : "\t", each.code.empty() ? "-" : each.code, ' ', each.lines, ' ',
                each.text);
  }
  return out;
}

std::optional<std::vector<Remark>> remarks_in(std::string_view all) {
  std::vector<Remark> out;
  while (!all.empty()) {
    const std::string_view one = all.substr(0, all.find('\t'));
    all.remove_prefix(std::min(one.size() + 1, all.size()));
    const size_t first = one.find(' '), second = one.find(' ', first + 1);
    if (first == one.npos || second == one.npos || out.size() == kMostRemarks) return std::nullopt;
    const auto lines = number_in(one.substr(first + 1, second - first - 1));
    const std::string bracketed = text("(", one.substr(0, first), ")");
    std::string_view left = bracketed;
    const std::string_view code = take_code(&left);
    if (!lines || (code.empty() && !one.starts_with("- "))) return std::nullopt;
    // An entry may come from somebody else, so its text is made printable again.
    out.push_back({std::string(code), escaped(one.substr(second + 1), kMostPrintable), *lines});
  }
  return out;
}

}  // namespace lathe
