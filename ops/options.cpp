// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks which values of options are allowed, and parses them into a struct's members.
#include "ops/options.h"

#include <cfloat>
#include <charconv>
#include <cmath>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

template <typename Number>
bool parses(std::string_view value, Number* number) {
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, *number);
  return error == std::errc() && stop == end;
}

// "[-5,0)": from the first to below the second.
template <typename Number>
bool in_range(std::string_view range, Number number) {
  const size_t comma = range.find(',');
  Number from = 0, below = 0;
  return range.starts_with('[') && parses(range.substr(1, comma - 1), &from) &&
         parses(range.substr(comma + 1, range.size() - comma - 2), &below) && from <= number &&
         number < below;
}

// Returns whether a number is in the list: a number itself, ">0", ">=0" or a range.
template <typename Number>
bool number_allowed(std::string_view allowed, Number number) {
  for (std::string_view each : split(allowed, '|')) {
    if (each == "any") return true;
    if (in_range(each, number)) return true;
    Number word = 0;
    const bool above = each.starts_with('>'), from = each.starts_with(">=");
    if (!parses(each.substr(from ? 2 : above ? 1 : 0), &word)) continue;
    if (number == word ? !above || from : above && number > word) return true;
  }
  return false;
}

// Reads "16,16,32". Returns false for anything else.
bool parses_list(std::string_view value, std::vector<int64_t>* numbers) {
  if (value.empty() || value.back() == ',') return false;
  for (const std::string_view each : split(value, ',')) {
    int64_t number = 0;
    if (each.empty() || each[0] < '1' || each[0] > '9' || !parses(each, &number)) return false;
    if (number > kMaxExtent) return false;
    numbers->push_back(number);
  }
  return true;
}

}  // namespace

bool is_allowed(const OptionInfo& option, const std::string& value) {
  int64_t integer = 0;
  double number = 0;
  switch (option.type) {
    case OptionType::integer:
      return parses(value, &integer) && number_allowed(option.allowed, integer);
    case OptionType::number:
      // D^-0.5 and the like stand for themselves.
      if (!parses(value, &number)) return value == option.fallback;
      return std::isfinite(number) && number_allowed(option.allowed, number);
    case OptionType::word: {
      // FILE stands for any name.
      std::vector<int64_t> numbers;
      if (value == "LIST") return false;
      return listed(option.allowed, '|', value) ||
             (!value.empty() && listed(option.allowed, '|', "FILE")) ||
             (listed(option.allowed, '|', "LIST") && parses_list(value, &numbers));
    }
  }
  return false;
}

Status parse_option(const OptionInfo&, const std::string& value, bool* out) {
  *out = value == "1";
  return {};
}

Status parse_option(const OptionInfo&, const std::string& value, int64_t* out) {
  parses(value, out);
  return {};
}

Status parse_option(const OptionInfo& option, const std::string& value, float* out) {
  std::optional<float> number;
  LATHE_TRY(parse_option(option, value, &number));
  *out = number.value_or(0);
  return {};
}

Status parse_option(const OptionInfo& option, const std::string& value, std::optional<float>* out) {
  double number = 0;
  if (!parses(value, &number)) return {};
  *out = std::abs(number) > FLT_MAX ? HUGE_VALF : static_cast<float>(number);
  // A factor that is rounded to 0, or out of range, would mean something else than it says.
  const bool vanishes = **out == 0 && number != 0 && !listed(option.allowed, '|', "any");
  if (std::isfinite(**out) && !vanishes) return {};
  return invalid(text("option ", option.name, " is ", in_quotes(value),
                      ", which float32 does not hold; allowed are ", option.allowed));
}

Status parse_option(const OptionInfo&, const std::string& value, std::vector<int64_t>* out) {
  out->clear();
  if (!parses_list(value, out)) out->clear();
  return {};
}

int word_number(const OptionInfo& option, const std::string& value) {
  int number = 0;
  for (std::string_view each : split(option.allowed, '|')) {
    if (each == value) return number;
    ++number;
  }
  return 0;
}

}  // namespace lathe
