// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows of option tables, each bound to a member of the operator's struct of options, into which its
// value is parsed once.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "ops/schema.h"

namespace lathe {

// Parses an allowed value for a member. INVALID_ARGUMENT where float32 does not hold the number; a
// value that is no number, such as "unset", is none.
Status parse_option(const OptionInfo& option, const std::string& value, bool* out);
Status parse_option(const OptionInfo& option, const std::string& value, int64_t* out);
Status parse_option(const OptionInfo& option, const std::string& value, float* out);
Status parse_option(const OptionInfo& option, const std::string& value, std::optional<float>* out);
// The number of a word in the list of those that are allowed.
int word_number(const OptionInfo& option, const std::string& value);

template <typename Word>
requires std::is_enum_v<Word> Status parse_option(const OptionInfo& option,
                                                  const std::string& value, Word* out) {
  *out = static_cast<Word>(word_number(option, value));
  return {};
}

// Rows for the struct Options. A group of options that several operators have is a variable
// template over it: the members may be those of a base.
template <typename Options>
struct Bind {
  template <auto kMember>
  static Status store(const OptionInfo& option, const std::string& value, void* options) {
    return parse_option(option, value, &(static_cast<Options*>(options)->*kMember));
  }

  template <auto kMember>
  static constexpr OptionInfo flag(const char* name, const char* sentence,
                                   const char* allowed = "0|1") {
    // The first value that is allowed is the default.
    return {name,     OptionType::integer, allowed[0] == '1' ? "1" : "0", allowed,
            sentence, store<kMember>};
  }
  template <auto kMember>
  static constexpr OptionInfo integer(const char* name, const char* fallback, const char* allowed,
                                      const char* sentence) {
    return {name, OptionType::integer, fallback, allowed, sentence, store<kMember>};
  }
  template <auto kMember>
  static constexpr OptionInfo number(const char* name, const char* fallback, const char* allowed,
                                     const char* sentence) {
    return {name, OptionType::number, fallback, allowed, sentence, store<kMember>};
  }
  template <auto kMember>
  static constexpr OptionInfo word(const char* name, const char* fallback, const char* allowed,
                                   const char* sentence) {
    return {name, OptionType::word, fallback, allowed, sentence, store<kMember>};
  }
};

// An option output_NAME, which says what declaring the tensor NAME says; the two must agree.
constexpr OptionInfo output_option(const char* name, const char* sentence) {
  return {name, OptionType::integer, "0", "0|1", sentence};
}
// An option whose value is a device text: read when it is set, and kept in the problem.
constexpr OptionInfo text_option(const char* name, const char* sentence) {
  return {name, OptionType::word, "none", "none|FILE", sentence};
}

template <typename Options>
std::shared_ptr<void> new_options() {
  return std::make_shared<Options>();
}

// Whether a value of the caller's is allowed.
bool is_allowed(const OptionInfo& option, const std::string& value);

}  // namespace lathe
