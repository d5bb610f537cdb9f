// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/table.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace bench {
namespace {

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (char letter : cell) {
    if (letter == '"') out += '"';
    out += letter;
  }
  return out + '"';
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) out += (i ? "," : "") + quoted(cells[i]);
  return out + "\n";
}

}  // namespace

void Table::add(std::vector<std::string> row) {
  if (row.size() != columns_.size()) throw std::logic_error("a cell per column");
  rows_.push_back(std::move(row));
}

std::string Table::markdown() const {
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns_.size(); ++i) {
    size_t width = std::max<size_t>(columns_[i].size(), 3);
    for (const auto& row : rows_) width = std::max(width, row[i].size());
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) {
      out += "| " + cells[i] + std::string(widths[i] - cells[i].size() + 1, ' ');
    }
    out += "|\n";
  };
  line(columns_);
  for (size_t width : widths) out += "|" + std::string(width + 2, '-');
  out += "|\n";
  for (const auto& row : rows_) line(row);
  return out;
}

std::string Table::csv() const {
  std::string out = csv_line(columns_);
  for (const auto& row : rows_) out += csv_line(row);
  return out;
}

std::string Table::last_line() const { return csv_line(rows_.at(rows_.size() - 1)); }

std::string number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

Spread spread(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

}  // namespace bench
