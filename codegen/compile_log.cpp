// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads what ptxas -v says. Wording is matched loosely and numbers strictly: a log in another
// language or layout gives -1, never a failed compile.
#include <algorithm>
#include <cctype>
#include <string_view>

#include "codegen/nvrtc.h"

namespace lathe {
namespace {

// The number that stands before `what` in `line`, as in "512 bytes smem"; -1 if there is none.
int number_before(std::string_view line, std::string_view what) {
  size_t at = line.find(what);
  if (at == std::string_view::npos) return -1;
  while (at > 0 && line[at - 1] == ' ') --at;
  long long value = 0, scale = 1;
  bool any = false;
  while (at > 0 && std::isdigit(static_cast<unsigned char>(line[at - 1])) != 0) {
    value += scale * (line[--at] - '0');
    scale *= 10;
    any = true;
    if (value > 1'000'000'000) return -1;
  }
  return any ? static_cast<int>(value) : -1;
}

void read_line(std::string_view line, CompileReport* report) {
  if (line.find("stack frame") != std::string_view::npos) {
    report->stack_bytes = number_before(line, "bytes stack frame");
    report->spill_stores = number_before(line, "bytes spill stores");
    report->spill_loads = number_before(line, "bytes spill loads");
  }
  const int registers = number_before(line, "registers");
  if (registers >= 0 && line.find("Used") != std::string_view::npos) {
    report->registers = registers;
    // ptxas leaves out what is zero.
    report->barriers = std::max(0, number_before(line, "barriers"));
    report->smem_static = std::max(0, number_before(line, "bytes smem"));
  }
}

}  // namespace

CompileReport parse_compile_log(const std::string& log) {
  CompileReport report;
  bool inside = false;
  std::string_view rest = log;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find("Compiling entry function") != std::string_view::npos) {
      inside = line.find("'entry'") != std::string_view::npos;
    } else if (inside) {
      read_line(line, &report);
    }
  }
  return report;
}

}  // namespace lathe
