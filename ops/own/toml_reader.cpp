// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/toml_reader.h"

#include <algorithm>

#include "codegen/base/nearest_name.h"
#include "codegen/base/printable.h"

namespace lathe::own {
namespace {

constexpr size_t kMostShown = 60;

std::string shown(const std::string& value) {
  return value.size() <= kMostShown ? in_quotes(value)
                                    : in_quotes(value.substr(0, kMostShown)) + "...";
}

bool is_one_line(const std::string& value) {
  return std::ranges::none_of(value, [](char c) { return static_cast<unsigned char>(c) < ' '; });
}

}  // namespace

std::string found_text(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return shown(**node.as_string());
    case toml::node_type::integer:
      return std::to_string(**node.as_integer());
    case toml::node_type::boolean:
      return **node.as_boolean() ? "true" : "false";
    case toml::node_type::floating_point:
      return "a number with a point";
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    default:
      return "a date or a time";
  }
}

Result<toml::table> TomlReader::parse(const std::string& toml) const {
  toml::parse_result parsed = toml::parse(std::string_view(toml));
  if (parsed) return std::move(parsed).table();
  const toml::parse_error& error = parsed.error();
  const auto at = error.source().begin;
  return refuse({static_cast<int>(at.line), static_cast<int>(at.column)},
                text("the description is no TOML: ",
                     escaped(std::string(error.description()), kMostSentenceBytes)));
}

std::vector<Entry> TomlReader::entries(const toml::table& table) {
  std::vector<Entry> out;
  for (const auto& [key, node] : table) {
    const auto begin = key.source().begin;
    out.push_back({std::string(key.str()),
                   &node,
                   {static_cast<int>(begin.line), static_cast<int>(begin.column)}});
  }
  std::ranges::stable_sort(out, [](const Entry& a, const Entry& b) {
    return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
  });
  return out;
}

Status TomlReader::check_known(const std::string& where, const std::vector<Entry>& entries,
                               std::initializer_list<std::string_view> known) const {
  for (const Entry& each : entries) {
    if (std::ranges::find(known, each.name) != known.end()) continue;
    return refuse(each.at, text(where, " has no ", in_quotes(each.name),
                                did_you_mean(each.name, std::vector<std::string_view>(known)),
                                "; allowed are ", comma_list(known)));
  }
  return {};
}

const Entry* TomlReader::find(const std::vector<Entry>& entries, std::string_view name) {
  const auto found = std::ranges::find(entries, name, &Entry::name);
  return found == entries.end() ? nullptr : &*found;
}

Result<const toml::table*> TomlReader::table(const Entry& entry, const char* example) const {
  if (const toml::table* found = entry.node->as_table()) return found;
  return refuse(entry, text("is ", found_text(*entry.node), "; allowed is ", example));
}

Result<std::string> TomlReader::string(const Entry& entry, size_t most) const {
  const auto* found = entry.node->as_string();
  if (found == nullptr) {
    return refuse(entry, text("is ", found_text(*entry.node), "; allowed is a text in quotes"));
  }
  const std::string& value = **found;
  if (value.empty() || value.size() > most || !is_one_line(value)) {
    return refuse(
        entry, text("has ", value.size(), " bytes", is_one_line(value) ? "" : " on several lines",
                    "; allowed are 1 to ", most, " on one line"));
  }
  return value;
}

Result<bool> TomlReader::boolean(const Entry& entry) const {
  if (const auto* found = entry.node->as_boolean()) return **found;
  return refuse(entry, text("is ", found_text(*entry.node), "; allowed are true and false"));
}

Result<std::vector<std::string>> TomlReader::strings(const Entry& entry, size_t most) const {
  const toml::array* list = entry.node->as_array();
  if (list == nullptr) {
    LATHE_ASSIGN(std::string one, string(entry));
    return std::vector<std::string>{std::move(one)};
  }
  if (list->empty() || list->size() > most) {
    return refuse(entry, text("has ", list->size(), " values; allowed are 1 to ", most));
  }
  std::vector<std::string> out;
  for (const toml::node& each : *list) {
    LATHE_ASSIGN(std::string one, string({entry.name, &each, position_of(each)}));
    out.push_back(std::move(one));
  }
  return out;
}

Result<Expression> TomlReader::expression(const Entry& entry, const toml::node& node,
                                          const Scope& scope) const {
  if (const auto* number = node.as_integer()) return Expression::number(**number);
  const auto* found = node.as_string();
  if (found == nullptr) {
    return refuse(position_of(node), text(entry.name, " is ", found_text(node),
                                          "; allowed are a whole number and a text in quotes, an "
                                          "integer expression such as \"ceil_div(T, 4)\""));
  }
  ExpressionFault fault;
  if (auto parsed = Expression::parse(**found, scope, &fault)) return std::move(*parsed);
  Position at = position_of(node);
  at.column += 1 + static_cast<int>(fault.at);
  return refuse(at, text(entry.name, " is ", shown(**found), ": ", fault.what));
}

}  // namespace lathe::own
