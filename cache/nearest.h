// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds, among all key texts shown, the one most like that of a miss.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lathe {

class NearestKey {
 public:
  // How many entries of one place are worth reading for a message.
  static constexpr int kMostCompared = 256;

  explicit NearestKey(std::string asked);
  NearestKey(const NearestKey&) = delete;
  NearestKey& operator=(const NearestKey&) = delete;
  void look_at(std::string_view key_text);
  // "spec=... (there: spec=...)" of the nearest; empty if nothing was shown.
  const std::string& difference() const { return difference_; }

 private:
  std::string asked_;
  std::vector<std::string_view> lines_;  // of asked_
  size_t most_ = 0;
  std::string difference_;
};

std::vector<std::string_view> lines_of(std::string_view text);
// The value of the line "name=value" of a text of such lines; empty if it has none.
std::string_view value_of(std::string_view text, std::string_view name);

}  // namespace lathe
