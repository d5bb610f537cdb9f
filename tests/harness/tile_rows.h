// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file reads tables of kernel configurations as text, a line each: dtypes, numbers, a tile's
// constants, flags.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/harness/call.h"

namespace apitest {

// A TableRow is one line: "bf16 128 64 m=64 n=64 stages=1 warps=4 | packed sinks".
struct TableRow {
  std::vector<lathe_dtype> dtypes;
  std::vector<int> numbers;
  std::string tile;   // the words with "="
  std::string flags;  // the words behind "|"
};

inline lathe_dtype dtype_of(const std::string& word) {
  if (word == "f32") return LATHE_F32;
  if (word == "f16") return LATHE_F16;
  if (word == "bf16") return LATHE_BF16;
  throw std::invalid_argument("no dtype: " + word);
}

inline std::vector<TableRow> table_rows(const std::string& text) {
  std::vector<TableRow> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    TableRow row;
    std::string* list = nullptr;  // of flags
    for (std::string word; words >> word;) {
      if (word == "|") {
        list = &row.flags;
      } else if (list != nullptr || word.find('=') != word.npos) {
        std::string& to = list != nullptr ? *list : row.tile;
        to += (to.empty() ? "" : " ") + word;
      } else if (word.find_first_not_of("0123456789") == word.npos) {
        row.numbers.push_back(std::stoi(word));
      } else {
        row.dtypes.push_back(dtype_of(word));
      }
    }
    if (!row.dtypes.empty()) rows.push_back(row);
  }
  return rows;
}

// A TileRow is a configuration of a kernel of attention.
struct TileRow {
  lathe_dtype dtype;
  int64_t width, value_width;  // that the kernel is made for: heads may be narrower
  std::string tile;            // "": the default
  std::string flags;
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

inline std::vector<TileRow> tile_rows(const std::string& text) {
  std::vector<TileRow> rows;
  for (const TableRow& row : table_rows(text)) {
    rows.push_back({row.dtypes.at(0), row.numbers.at(0), row.numbers.at(1), row.tile, row.flags});
  }
  return rows;
}

}  // namespace apitest
