// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads JSON text from outside with bounds and with no name twice in an object.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lathe {

// Says why a text is refused. Its reader says so in words of its own.
struct JsonFault {
  enum class Kind { syntax, too_deep, too_many_names, name_twice };
  Kind kind;
  std::string detail;  // the parser's sentence, or the name
};

struct JsonLimits {
  int depth;                // of values in each other
  size_t names = SIZE_MAX;  // of one object
};

// A first pass over the text, which makes nothing of it. Time goes with the length of the text,
// which it does not in the parser that asks a function about each value.
template <typename Json>
class JsonScan final : public nlohmann::json_sax<Json> {
 public:
  using Base = nlohmann::json_sax<Json>;
  using Kind = JsonFault::Kind;

  explicit JsonScan(const JsonLimits& limits) : limits_(limits) {}
  const std::optional<JsonFault>& fault() const { return fault_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Base::number_integer_t) override { return true; }
  bool number_unsigned(typename Base::number_unsigned_t) override { return true; }
  bool number_float(typename Base::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(typename Base::binary_t&) override { return true; }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool start_object(std::size_t) override {
    names_.emplace_back();
    return enter();
  }
  bool end_object() override {
    names_.pop_back();
    return leave();
  }
  bool key(std::string& name) override {
    if (names_.back().size() == limits_.names) return stop(Kind::too_many_names, name);
    return names_.back().insert(name).second || stop(Kind::name_twice, name);
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    return stop(Kind::syntax, error.what());
  }

 private:
  bool enter() { return ++depth_ <= limits_.depth || stop(Kind::too_deep, {}); }
  bool leave() {
    --depth_;
    return true;
  }
  bool stop(Kind kind, std::string detail) {
    fault_ = {kind, std::move(detail)};
    return false;
  }

  const JsonLimits limits_;
  int depth_ = 0;
  std::vector<std::set<std::string>> names_;  // of the objects that are open
  std::optional<JsonFault> fault_;
};

// Reads a text, which ends with its value. Nothing is made of a text that has a fault.
template <typename Json>
std::optional<JsonFault> read_json(std::string_view text, const JsonLimits& limits, Json* out) {
  JsonScan<Json> scan(limits);
  if (Json::sax_parse(text.begin(), text.end(), &scan)) {
    *out = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  }
  return scan.fault();
}

}  // namespace lathe
