// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes rows of option tables. Each row is bound to a member of the operator's struct of options,
// and its value is parsed into that member once.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/schema.h"

namespace lathe {

// Parse an allowed value for a member. They return INVALID_ARGUMENT if float32 does not hold the
// number. A value that is no number, such as "unset", gives no number.
Status parse_option(const OptionInfo& option, const std::string& value, bool* out);
Status parse_option(const OptionInfo& option, const std::string& value, int64_t* out);
Status parse_option(const OptionInfo& option, const std::string& value, float* out);
Status parse_option(const OptionInfo& option, const std::string& value, std::optional<float>* out);
// A LIST; a word that stands for none gives no number.
Status parse_option(const OptionInfo& option, const std::string& value, std::vector<int64_t>* out);
// Returns the number of a word in the list of allowed words.
int word_number(const OptionInfo& option, const std::string& value);

template <typename Word>
requires std::is_enum_v<Word> Status parse_option(const OptionInfo& option,
                                                  const std::string& value, Word* out) {
  *out = static_cast<Word>(word_number(option, value));
  return {};
}

// Makes rows for the struct Options. A group of options that several operators have is a variable
// template over Options: the members may be those of a base.
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
  static constexpr OptionInfo list(const char* name, const char* sentence) {
    return {name, OptionType::word, "none", "none|LIST", sentence, store<kMember>};
  }
  template <auto kMember>
  static constexpr OptionInfo word(const char* name, const char* fallback, const char* allowed,
                                   const char* sentence) {
    return {name, OptionType::word, fallback, allowed, sentence, store<kMember>};
  }
};

// Makes an option output_NAME, which has the same meaning as declaring the tensor NAME. Both must
// agree.
constexpr OptionInfo output_option(const char* name, const char* sentence) {
  return {name, OptionType::integer, "0", "0|1", sentence};
}
// Makes an option whose value is a device text. The text is read when the option is set, and kept
// in the problem.
constexpr OptionInfo text_option(const char* name, const char* sentence) {
  return {name, OptionType::word, "none", "none|FILE", sentence};
}

template <typename Options>
std::shared_ptr<void> new_options() {
  return std::make_shared<Options>();
}

// Returns whether a caller's value is allowed.
bool is_allowed(const OptionInfo& option, const std::string& value);

}  // namespace lathe
