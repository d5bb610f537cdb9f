// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/inputs/text.h"

#include <fstream>
#include <sstream>

#include "codegen/base/json.h"
#include "codegen/base/printable.h"

namespace lathe::cli {

std::string read_text(const char* option, const std::string& path) {
  std::ifstream from(path, std::ios::binary);
  std::ostringstream text;
  if (from) text << from.rdbuf();
  if (!from) refuse(option, " is ", in_quotes(path), ", which cannot be read");
  if (text.view().find('\0') != std::string_view::npos) {
    refuse(option, " is ", in_quotes(path), ", which holds a byte 0; allowed is text");
  }
  return text.str();
}

std::vector<Intervals> read_ranges(const char* option, const std::string& path) {
  constexpr int kMostDepth = 3;  // the table, a rank, a range
  const std::string contents = read_text(option, path);
  const auto reject = [&](const std::string& what) {
    refuse(option, " is ", in_quotes(path), ", ", what,
           "; allowed is a JSON list that has for each rank a list of [first, last)");
  };
  Json json;
  if (read_json(contents, {kMostDepth}, &json)) reject("which is not valid JSON");
  if (!json.is_array()) reject("which is no list");
  std::vector<Intervals> out;
  for (const Json& rank : json) {
    if (!rank.is_array()) reject(text("whose entry ", out.size(), " is no list"));
    Intervals& own = out.emplace_back();
    for (const Json& range : rank) {
      const bool pair = range.is_array() && range.size() == 2 && range[0].is_number_integer() &&
                        range[1].is_number_integer();
      if (!pair) {
        reject(text("whose range ", own.size(), " of rank ", out.size() - 1,
                    " is no pair of integers"));
      }
      own.emplace_back(range[0].get<int64_t>(), range[1].get<int64_t>());
    }
  }
  return out;
}

}  // namespace lathe::cli
