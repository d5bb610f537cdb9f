// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Prints rows of figures as a markdown table or as CSV, and computes the statistics of repeated
// timings.
#pragma once

#include <string>
#include <vector>

namespace bench {

class Table {
 public:
  explicit Table(std::vector<std::string> columns) : columns_(std::move(columns)) {}
  // Adds a row with one cell per column.
  void add(std::vector<std::string> row);
  std::string markdown() const;
  std::string csv() const;
  std::string last_line() const;  // the row added last, as csv() has it

 private:
  std::vector<std::string> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Fixed digits: number(3.14159, 2) is "3.14".
std::string number(double value, int digits);

struct Spread {
  double median = 0, low = 0, high = 0;  // the 10th and the 90th percentile
};
Spread spread(std::vector<double> samples);

}  // namespace bench
