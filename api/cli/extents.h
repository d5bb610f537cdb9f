// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The letters of the operator table's shapes, and what each stands for in a problem.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "api/cli/tensors.h"

namespace lathe::cli {

// The letters of each shape that a tensor may have: "B,H,Sq|H,Tq" is {{"B", "H", "Sq"}, ...}.
std::vector<std::vector<std::string>> shapes(const lathe_operator_tensor& tensor);
// Those of the shape of this rank: {"B", "T", "D"}; empty if it has none. Of several shapes of one
// rank the one of that number: 1 with states [..,V,K], or the option axis.
std::vector<std::string> letters(const lathe_operator_tensor& tensor, size_t rank, int number = 0);
// The counts of tokens, rows of a batch, sequences, slots and pages: they differ from run to run
// and are never part of a kernel.
bool varies(const std::string& letter);
// All of them that an operator's shapes have, in the table's order.
std::vector<std::string> varying_letters(const lathe_operator_info& op);
// "T" is {"T", 0}; "N+1" is {"N", 1}.
std::pair<std::string, int64_t> parse_letter(const std::string& letter);

// Collects the letters' values and says who disagrees. -1 leaves a letter open.
class Extents {
 public:
  explicit Extents(std::map<std::string, int64_t>* known, int number = 0)
      : known_(known), number_(number) {}
  void bind(const lathe_operator_tensor& tensor, const TensorSpec& spec);
  // What follows from other letters rather than from a tensor.
  void imply(const std::string& letter, int64_t value, const std::string& from);

 private:
  void set(const std::string& letter, int64_t value, const std::string& name,
           const TensorSpec& spec);

  std::map<std::string, int64_t>* known_;
  int number_;                               // of a tensor's shapes of one rank
  std::map<std::string, std::string> from_;  // which tensor gave a letter its value
};

}  // namespace lathe::cli
