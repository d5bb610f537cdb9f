// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe doctor`: what is found, what is missing, and the remedy.
#include <algorithm>
#include <cstdio>

#include "api/cli/options.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

// The findings may change between two calls, so the size is only a hint.
std::vector<std::vector<std::string>> doctor_rows() {
  std::string text;
  size_t needed = 4096;
  do {
    text.assign(needed, '\0');
    check(lathe_doctor(text.data(), text.size(), &needed));
  } while (needed > text.size());
  return rows_of(text.c_str(), 4);
}

namespace {

int doctor(bool json) {
  Json items = Json::array();
  const auto rows = doctor_rows();
  size_t width = 0;
  for (const auto& row : rows) {
    items.push_back({{"name", row[0]}, {"state", row[1]}, {"where", row[2]}, {"remedy", row[3]}});
    width = std::max(width, row[0].size());
  }
  if (json) {
    print_json({{"version", lathe_version()}, {"items", items}});
    return kDone;
  }
  std::printf("lathe %s\n", lathe_version());
  for (const auto& row : rows) {
    std::printf("  %-*s  %-7s  %s\n", static_cast<int>(width), row[0].c_str(), row[1].c_str(),
                row[2].c_str());
    if (!row[3].empty()) {
      std::printf("  %-*s  %-7s  -> %s\n", static_cast<int>(width), "", "", row[3].c_str());
    }
  }
  return kDone;
}

}  // namespace

Action add_doctor(CLI::App* app) {
  auto* verb = app->add_subcommand("doctor", "what is found on this machine and what is missing");
  const auto json = std::make_shared<bool>(false);
  add_json_flag(verb, json.get());
  return [json] { return doctor(*json); };
}

}  // namespace lathe::cli
