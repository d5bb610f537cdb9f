// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads values of a description's TOML. Each refusal says where, what was found and what is
// allowed.
#pragma once

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/base/invalid.h"
#include "ops/own/description.h"

namespace lathe::own {

// A value with its name, in the order of the text.
struct Entry {
  std::string name;
  const toml::node* node = nullptr;
  Position at;  // of the name
};

// Reads one text.
class TomlReader {
 public:
  explicit TomlReader(std::string file) : file_(std::move(file)) {}

  // Parses TOML whose first line is the text's line 1.
  Result<toml::table> parse(const std::string& toml) const;

  Status refuse(Position at, const std::string& what) const {
    return invalid(text(file_, ":", at.line, ":", at.column, ": ", what));
  }
  Status refuse(const Entry& entry, const std::string& what) const {
    return refuse(entry.at, text(entry.name, " ", what));
  }

  // Returns the entries of a table in the order of the text.
  static std::vector<Entry> entries(const toml::table& table);
  // Refuses names that `known` does not have.
  Status check_known(const std::string& where, const std::vector<Entry>& entries,
                     std::initializer_list<std::string_view> known) const;
  // The entry of a name; null if it is not there.
  static const Entry* find(const std::vector<Entry>& entries, std::string_view name);

  Result<const toml::table*> table(const Entry& entry, const char* example) const;
  // Text on one line, of at most `most` bytes, printable.
  Result<std::string> string(const Entry& entry, size_t most = kMostSentenceBytes) const;
  Result<bool> boolean(const Entry& entry) const;
  // "T", or ["T", "H"]: one text or a list of them.
  Result<std::vector<std::string>> strings(const Entry& entry, size_t most) const;
  // An expression is a text or a whole number.
  Result<Expression> expression(const Entry& entry, const toml::node& node,
                                const Scope& scope) const;
  Result<Expression> expression(const Entry& entry, const Scope& scope) const {
    return expression(entry, *entry.node, scope);
  }

 private:
  std::string file_;
};

inline Position position_of(const toml::node& node) {
  const auto begin = node.source().begin;
  return {static_cast<int>(begin.line), static_cast<int>(begin.column)};
}

// Refuses one more than `most` of a kind.
template <typename List>
Status check_count(const TomlReader& reader, const Entry& entry, const char* what, const List& list,
                   size_t most) {
  if (list.size() < most) return {};
  return reader.refuse(entry.at,
                       text("there are more than ", most, " ", what, "; allowed are ", most));
}

// Returns what a value is, for messages: "a number", "'abc'".
std::string found_text(const toml::node& node);

}  // namespace lathe::own
