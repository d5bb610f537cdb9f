// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/inputs/json_names.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "api/cli/failure.h"

namespace lathe::cli {
namespace {

using Json = nlohmann::json;

class Scan final : public nlohmann::json_sax<Json> {
 public:
  explicit Scan(int most_depth) : most_depth_(most_depth) {}
  const std::string& wrong() const { return wrong_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    names_.emplace_back();
    return enter();
  }
  bool end_object() override {
    names_.pop_back();
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (names_.back().insert(name).second) return true;
    return stop("the name " + in_quotes(name) + " stands twice in the header");
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return stop("the header is not valid JSON");
  }

 private:
  bool enter() {
    if (++depth_ <= most_depth_) return true;
    return stop("the header's values lie more than " + std::to_string(most_depth_) +
                " deep in each other");
  }
  bool stop(std::string why) {
    wrong_ = std::move(why);
    return false;
  }

  const int most_depth_;
  int depth_ = 0;
  std::vector<std::set<std::string>> names_;
  std::string wrong_;
};

}  // namespace

std::string wrong_with_object(const std::string& text, int most_depth) {
  // The parser takes a byte 0 for the end, and passes over a byte order mark.
  if (text.empty() || text.find('\0') != text.npos) return "the header is not valid JSON";
  if (text.front() != '{') return "the header is not a JSON object that begins with {";
  Scan scan(most_depth);
  Json::sax_parse(text, &scan);
  return scan.wrong();
}

}  // namespace lathe::cli
