// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// An entry's facts about its kernel: registers, spill_stores, spec, threads, ... They are kept as
// they stand in the file, because a start reads all of them and asks for little.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "codegen/base/status.h"

namespace lathe {

class Metadata {
 public:
  Metadata() = default;
  Metadata(std::initializer_list<std::pair<std::string_view, std::string_view>> values);
  // Lines name=value, sorted, no name twice; CACHE_IO for others.
  static Result<Metadata> parse(std::string lines);
  const std::string& lines() const { return lines_; }

  // In place of another value of that name. A value is one line: newlines in it become blanks.
  void set(std::string_view name, std::string_view value);
  // Lent until the next set.
  std::optional<std::string_view> find(std::string_view name) const;
  size_t size() const;
  bool operator==(const Metadata&) const = default;

 private:
  std::string lines_;
};

}  // namespace lathe
