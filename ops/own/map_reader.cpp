// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/map_reader.h"

#include <algorithm>

#include "codegen/base/printable.h"
#include "ops/own/maps.h"

namespace lathe::own {
namespace {

constexpr const char* kExample = "{ box = \"64 kTile\", swizzle = 128 }";

// "64 kTile": words with blanks between them, each of which is an expression.
Status read_words(const TomlReader& reader, const Entry& entry, const Scope& compiled,
                  TensorText* tensor) {
  LATHE_ASSIGN(const std::string all, reader.string(entry));
  const Position at = position_of(*entry.node);
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find(' ', begin), all.size());
    if (end > begin) {
      ExpressionFault fault;
      auto extent = Expression::parse(all.substr(begin, end - begin), compiled, &fault);
      if (!extent) {
        const int column = at.column + 1 + static_cast<int>(begin + fault.at);
        return reader.refuse({at.line, column},
                             text(entry.name, " is ", in_quotes(all), ": ", fault.what));
      }
      tensor->box.push_back(std::move(*extent));
    }
    begin = end + 1;
  }
  return {};
}

Status read_box(const TomlReader& reader, const Entry& entry, const Scope& compiled,
                TensorText* tensor) {
  if (entry.node->is_string()) return read_words(reader, entry, compiled, tensor);
  const toml::array* list = entry.node->as_array();
  if (list == nullptr) {
    LATHE_ASSIGN(Expression one, reader.expression(entry, compiled));
    tensor->box.push_back(std::move(one));
    return {};
  }
  for (const toml::node& each : *list) {
    LATHE_ASSIGN(Expression extent, reader.expression(entry, each, compiled));
    tensor->box.push_back(std::move(extent));
  }
  return {};
}

// Refuses numbers of the text at their place; the rest is told when a kernel is chosen.
Status check_numbers(const TomlReader& reader, const Entry& entry,
                     const std::vector<Expression>& extents, Status (*check)(int64_t)) {
  for (const Expression& each : extents) {
    int64_t value = 0;
    if (!each.is_constant() || !each.evaluate({}, &value).ok()) continue;
    if (const Status status = check(value); !status.ok()) {
      return reader.refuse(entry, status.text());
    }
  }
  return {};
}

}  // namespace

Status read_map_text(const TomlReader& reader, const Entry& entry, const Scope& compiled,
                     TensorText* tensor) {
  LATHE_ASSIGN(const toml::table* table, reader.table(entry, kExample));
  const std::vector<Entry> fields = TomlReader::entries(*table);
  LATHE_TRY(reader.check_known("map", fields, {"box", "swizzle"}));
  const Entry *box = TomlReader::find(fields, "box"),
              *swizzle = TomlReader::find(fields, "swizzle");
  if (box == nullptr) return reader.refuse(entry, text("has no box; allowed is ", kExample));
  LATHE_TRY(read_box(reader, *box, compiled, tensor));
  const auto rank = static_cast<size_t>(std::ranges::count(tensor->shape, ',')) + 1;
  if (tensor->box.size() != rank) {
    return reader.refuse(*box, text("has ", tensor->box.size(), " extents; allowed are ", rank,
                                    ", one for each dim of ", tensor->name, " [", tensor->shape,
                                    "], the last dim first: \"64 kTile\", or a list of "
                                    "expressions"));
  }
  LATHE_TRY(check_numbers(reader, *box, tensor->box, check_box_extent));
  if (swizzle == nullptr) return {};
  LATHE_ASSIGN(tensor->swizzle, reader.expression(*swizzle, compiled));
  return check_numbers(reader, *swizzle, {tensor->swizzle}, check_swizzle);
}

}  // namespace lathe::own
