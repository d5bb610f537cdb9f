// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cache/line_json.h"

#include <algorithm>
#include <charconv>

#include "api/cache/manifest.h"
#include "codegen/base/invalid.h"
#include "codegen/base/json.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

// The line, its tensors, one of them and its extents lie in each other. No operator has as many
// tensors or options: finding a name in the value goes through all of them.
constexpr JsonLimits kLimits = {4, 256};
constexpr size_t kMostWords = 200;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr size_t kMostShown = 100;

Status refusal(const JsonFault& fault) {
  switch (fault.kind) {
    case JsonFault::Kind::too_deep:
      return invalid(text("the values of the line lie ", kLimits.depth + 1,
                          " deep in each other; allowed are ", kLimits.depth));
    case JsonFault::Kind::too_many_names:
      return invalid(text("an object of the line has more than ", kLimits.names,
                          " names; allowed are ", kLimits.names));
    case JsonFault::Kind::name_twice:
      return invalid(text("the line has ", in_quotes(fault.detail), " twice; allowed is once"));
    case JsonFault::Kind::syntax:
      break;
  }
  // The message leaves out the parser's own name and number of the fault.
  const size_t from = fault.detail.find("] ");
  return invalid("the line is no JSON: " +
                 fault.detail.substr(from == std::string::npos ? 0 : from + 2, kMostWords));
}

}  // namespace

std::string shown(const LineJson& value) {
  std::string out = value.dump(-1, ' ', true);
  if (out.size() > kMostShown) out = out.substr(0, kMostShown) + "...";
  return out;
}

Status wrong(std::string_view field, const LineJson& value, std::string_view allowed) {
  return invalid(text(field, " is ", shown(value), "; allowed is ", allowed));
}

bool is_int64(const LineJson& value) {
  return value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t{INT64_MAX}
                                    : value.is_number_integer();
}

Result<LineJson> read_line_json(std::string_view given) {
  if (given.size() > kMostLineBytes) {
    return invalid(text("the line has ", given.size(), " bytes; allowed are ", kMostLineBytes));
  }
  // The parser takes a byte 0 for the end of the text, and passes over a byte order mark.
  if (const size_t zero = given.find('\0'); zero != given.npos) {
    return invalid(text("byte ", zero, " of the line is 0; allowed is JSON text"));
  }
  if (given.starts_with(kByteOrderMark)) {
    return invalid("the line begins with a byte order mark; allowed is the { of an object");
  }
  LineJson json;
  if (const auto fault = read_json(given, kLimits, &json)) return refusal(*fault);
  if (json.is_object()) return json;
  return invalid(text("the line is a JSON ", json.type_name(), "; allowed is an object"));
}

Result<std::string> option_text(std::string_view name, const LineJson& value) {
  if (value.is_boolean()) return std::string(value.get<bool>() ? "1" : "0");
  if (value.is_number_integer()) return value.dump();
  if (value.is_number_float()) {
    char digits[64];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value.get<double>()).ptr;
    return std::string(digits, end);
  }
  if (value.is_string() && value.get<std::string>().find('\0') == std::string::npos) {
    return value.get<std::string>();
  }
  return wrong("option " + escaped(name), value, "a number or a text");
}

Status check_fields(const LineJson& object, std::string_view where,
                    std::initializer_list<std::string_view> known) {
  for (const auto& [name, value] : object.items()) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    return invalid(
        text(where, " has the field ", in_quotes(name), "; allowed are ", comma_list(known)));
  }
  return {};
}

}  // namespace lathe
