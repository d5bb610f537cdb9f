// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// JSON text from outside, read with bounds and with no name twice in an object.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// Why a text is refused. Who reads it says so in words of its own.
struct JsonFault {
  enum class Kind { syntax, too_deep, too_many_names, name_twice };
  Kind kind;
  std::string detail;  // the parser's sentence, or the name
};

struct JsonLimits {
  int depth;                // of values in each other
  size_t names = SIZE_MAX;  // of one object
};

// Reads a text, which ends with its value. Nothing is made of what lies behind a fault.
template <typename Json>
std::optional<JsonFault> read_json(std::string_view text, const JsonLimits& limits, Json* out) {
  using Event = typename Json::parse_event_t;
  using Kind = JsonFault::Kind;
  std::vector<std::set<std::string>> names;  // of the objects that are open
  const auto check = [&](int depth, Event event, Json& value) {
    const bool starts = event == Event::object_start || event == Event::array_start;
    if (starts && depth >= limits.depth) throw JsonFault{Kind::too_deep, {}};
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event != Event::key) return true;
    const auto& name = value.template get_ref<const std::string&>();
    if (names.back().size() == limits.names) throw JsonFault{Kind::too_many_names, name};
    if (!names.back().insert(name).second) throw JsonFault{Kind::name_twice, name};
    return true;
  };
  try {
    *out = Json::parse(text.begin(), text.end(), check);
  } catch (const JsonFault& fault) {
    return fault;
  } catch (const typename Json::exception& error) {
    return JsonFault{Kind::syntax, error.what()};
  }
  return std::nullopt;
}

}  // namespace lathe
