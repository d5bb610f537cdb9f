// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The names that a description gives to things.
#pragma once

#include <initializer_list>
#include <set>
#include <string>

#include "codegen/base/printable.h"
#include "ops/own/toml_reader.h"

namespace lathe::own {

// Names of all kinds, each of which stands for one thing.
class Names {
 public:
  explicit Names(const TomlReader& reader) : reader_(reader) {}

  // `made`: what lathe makes of the name, which must be free as well.
  Status add(const Entry& entry, std::initializer_list<std::string> made = {});

 private:
  Status refuse(const Entry& entry, const std::string& what) const {
    return reader_.refuse(entry.at, text(in_quotes(entry.name), " ", what));
  }
  const TomlReader& reader_;
  std::set<std::string> known_;
};

}  // namespace lathe::own
