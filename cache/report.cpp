// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "cache/report.h"

#include <charconv>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr std::pair<const char*, int CompileReport::*> kNumbers[] = {
    {"barriers", &CompileReport::barriers},         {"registers", &CompileReport::registers},
    {"smem_static", &CompileReport::smem_static},   {"spill_loads", &CompileReport::spill_loads},
    {"spill_stores", &CompileReport::spill_stores}, {"stack_bytes", &CompileReport::stack_bytes},
};

std::string number(int value) { return value < 0 ? "?" : std::to_string(value); }

int number_in(const Metadata& metadata, const char* name) {
  const std::string_view digits = metadata.find(name).value_or("");
  int value = -1;
  const char* end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, value).ptr == end ? value : -1;
}

}  // namespace

void add_report(const CompileReport& report, Metadata* metadata) {
  for (const auto& [name, member] : kNumbers) metadata->set(name, number(report.*member));
  metadata->set("compile_ms", text(static_cast<long long>(report.milliseconds + 0.5)));
  metadata->set("ptx_banner", report.ptx_banner);
  metadata->set("remarks", remarks_text(report.remarks));
}

CompileReport report_of(const Metadata& metadata) {
  CompileReport report;
  for (const auto& [name, member] : kNumbers) report.*member = number_in(metadata, name);
  report.milliseconds = number_in(metadata, "compile_ms");
  report.ptx_banner = metadata.find("ptx_banner").value_or("");
  report.remarks = remarks_in(metadata.find("remarks").value_or("?"));
  return report;
}

}  // namespace lathe
