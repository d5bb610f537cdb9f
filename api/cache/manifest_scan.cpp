// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A first pass over the text finds what the second, which makes the value, would not object to.
#include "api/cache/manifest_scan.h"

#include <set>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostWords = 200;
// No operator has as many tensors or options; finding a name in the value goes through all of them.
constexpr size_t kMostNames = 256;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

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
    if (names_.back().size() == kMostNames) {
      wrong_ = text("an object of the line has more than ", kMostNames, " names; allowed are ",
                    kMostNames);
      return false;
    }
    if (names_.back().insert(name).second) return true;
    wrong_ = text("the line has ", in_quotes(name), " twice; allowed is once");
    return false;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // Without the parser's own name and number of the fault.
    const std::string what = error.what();
    const size_t from = what.find("] ");
    wrong_ = "the line is no JSON: " + what.substr(from == what.npos ? 0 : from + 2, kMostWords);
    return false;
  }

 private:
  bool enter() {
    if (++depth_ <= most_depth_) return true;
    wrong_ = text("the values of the line lie ", depth_, " deep in each other; allowed are ",
                  most_depth_);
    return false;
  }

  const int most_depth_;
  int depth_ = 0;
  std::vector<std::set<std::string>> names_;
  std::string wrong_;
};

}  // namespace

Result<Json> scan_json(std::string_view given, size_t most_bytes, int most_depth) {
  if (given.size() > most_bytes) {
    return invalid(text("the line has ", given.size(), " bytes; allowed are ", most_bytes));
  }
  // The parser takes a byte 0 for the end of the text, and passes over a byte order mark.
  if (const size_t zero = given.find('\0'); zero != given.npos) {
    return invalid(text("byte ", zero, " of the line is 0; allowed is JSON text"));
  }
  if (given.starts_with(kByteOrderMark)) {
    return invalid("the line begins with a byte order mark; allowed is the { of an object");
  }
  Scan scan(most_depth);
  if (!Json::sax_parse(given.begin(), given.end(), &scan)) return invalid(scan.wrong());
  Json json = Json::parse(given.begin(), given.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return invalid(text("the line is a JSON ", json.type_name(), "; allowed is an object"));
  }
  return json;
}

}  // namespace lathe
