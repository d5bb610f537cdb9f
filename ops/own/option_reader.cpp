// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/option_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "codegen/base/letters.h"
#include "codegen/base/printable.h"
#include "ops/options.h"

namespace lathe::own {
namespace {

constexpr size_t kMostWords = 32;

bool is_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number);
}

// "any", a number, ">0", ">=0" or "[-5,0)".
bool is_range(std::string_view text) {
  if (text == "any") return true;
  if (text.starts_with('[') && text.ends_with(')')) {
    const size_t comma = text.find(',');
    return comma != text.npos && is_number(text.substr(1, comma - 1)) &&
           is_number(text.substr(comma + 1, text.size() - comma - 2));
  }
  if (text.starts_with(">=")) return is_number(text.substr(2));
  if (text.starts_with('>')) return is_number(text.substr(1));
  return is_number(text);
}

bool is_word(std::string_view text) {
  return !text.empty() && text != "FILE" && text.size() <= kMostNameBytes &&
         std::ranges::all_of(text, [](char c) { return is_alphanumeric(c) || c == '_'; });
}

Status read_default(const TomlReader& reader, const Entry& entry, OptionText* option) {
  const toml::node& node = *entry.node;
  if (const auto* flag = node.as_boolean()) {
    option->type = OptionType::integer, option->fallback = **flag ? "1" : "0";
    option->allowed = "0|1";
  } else if (const auto* integer = node.as_integer()) {
    option->type = OptionType::integer, option->fallback = std::to_string(**integer);
    option->allowed = "any";
  } else if (const auto* number = node.as_floating_point()) {
    char digits[64];
    if (!std::isfinite(**number)) return reader.refuse(entry, "is not finite; allowed are numbers");
    const auto end = std::to_chars(digits, digits + sizeof(digits), **number).ptr;
    option->type = OptionType::number, option->fallback = std::string(digits, end);
    option->allowed = "any";
  } else {
    LATHE_ASSIGN(option->fallback, reader.string(entry, kMostNameBytes));
    option->type = OptionType::word;
  }
  return {};
}

Status check_allowed(const TomlReader& reader, const Entry& entry, const OptionText& option) {
  const std::vector<std::string_view> words = split(option.allowed, '|');
  const bool word = option.type == OptionType::word;
  for (const std::string_view each : words) {
    const bool whole = each.find('.') == each.npos || option.type != OptionType::integer;
    if (word ? is_word(each) : is_range(each) && whole) continue;
    return reader.refuse(entry, text("has ", in_quotes(each), "; allowed are ",
                                     word ? "words with | between them, \"none|silu\""
                                          : "any, numbers, \">0\", \">=0\" and \"[-5,0)\", with | "
                                            "between them"));
  }
  if (words.empty() || words.size() > kMostWords) {
    return reader.refuse(entry,
                         text("has ", words.size(), " parts; allowed are 1 to ", kMostWords));
  }
  return {};
}

}  // namespace

OptionInfo option_row(const OptionText& option) {
  return {.name = option.name.c_str(),
          .type = option.type,
          .fallback = option.fallback.c_str(),
          .allowed = option.allowed.c_str(),
          .sentence = option.what.c_str()};
}

Result<OptionText> read_option_text(const TomlReader& reader, const Entry& entry) {
  LATHE_ASSIGN(const toml::table* table,
               reader.table(entry, "{ default = 1e-6, allowed = \">0\", what = \"...\" }"));
  const std::vector<Entry> fields = TomlReader::entries(*table);
  LATHE_TRY(reader.check_known("option " + entry.name, fields,
                               {"default", "allowed", "what", "compiled"}));
  OptionText option{.name = entry.name, .what = "An option of the kernel."};
  const Entry* fallback = TomlReader::find(fields, "default");
  if (fallback == nullptr) {
    return reader.refuse(entry, "has no default; allowed are a number, a word, true and false");
  }
  LATHE_TRY(read_default(reader, *fallback, &option));
  const Entry* allowed = TomlReader::find(fields, "allowed");
  if (allowed != nullptr) {
    LATHE_ASSIGN(option.allowed, reader.string(*allowed));
    LATHE_TRY(check_allowed(reader, *allowed, option));
  } else if (option.type == OptionType::word) {
    return reader.refuse(entry, "is a word and has no allowed; allowed are words, \"none|silu\"");
  }
  if (const Entry* what = TomlReader::find(fields, "what")) {
    LATHE_ASSIGN(option.what, reader.string(*what));
  }
  if (const Entry* compiled = TomlReader::find(fields, "compiled")) {
    LATHE_ASSIGN(option.compiled, reader.boolean(*compiled));
    if (option.compiled && option.type == OptionType::number) {
      return reader.refuse(*compiled, "is true, but constants are whole numbers; allowed is false");
    }
  }
  if (!is_allowed(option_row(option), option.fallback)) {
    return reader.refuse(*fallback, text("is ", option.fallback, "; allowed are ", option.allowed));
  }
  float narrow = 0;
  if (option.type == OptionType::number &&
      !parse_option(option_row(option), option.fallback, &narrow).ok()) {
    return reader.refuse(*fallback, text("is ", option.fallback, ", which float32 does not hold"));
  }
  return option;
}

}  // namespace lathe::own
