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

// The letters of a tensor's shape: {"B", "T", "D"}.
std::vector<std::string> letters(const lathe_operator_tensor& tensor);
// "T" is {"T", 0}; "N+1" is {"N", 1}.
std::pair<std::string, int64_t> parse_letter(const std::string& letter);

// Collects the letters' values and says who disagrees. -1 leaves a letter open.
class Extents {
 public:
  explicit Extents(std::map<std::string, int64_t>* known) : known_(known) {}
  void bind(const lathe_operator_tensor& tensor, const TensorSpec& spec);
  // What follows from other letters rather than from a tensor.
  void imply(const std::string& letter, int64_t value, const std::string& from);

 private:
  void set(const std::string& letter, int64_t value, const std::string& name,
           const TensorSpec& spec);

  std::map<std::string, int64_t>* known_;
  std::map<std::string, std::string> from_;  // which tensor gave a letter its value
};

}  // namespace lathe::cli
