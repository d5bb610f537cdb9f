// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/own/names.h"

#include <algorithm>

#include "codegen/base/letters.h"

namespace lathe::own {
namespace {

// Words of C++ that a text of a description might take for a name.
constexpr std::string_view kKeywords[] = {
    "alignas",      "alignof", "asm",       "auto",      "bool",     "break",     "case",
    "catch",        "char",    "class",     "const",     "continue", "default",   "delete",
    "do",           "double",  "else",      "enum",      "explicit", "export",    "extern",
    "false",        "float",   "for",       "friend",    "goto",     "if",        "inline",
    "int",          "long",    "mutable",   "namespace", "new",      "noexcept",  "nullptr",
    "operator",     "private", "protected", "public",    "register", "return",    "short",
    "signed",       "sizeof",  "static",    "struct",    "switch",   "template",  "this",
    "throw",        "true",    "try",       "typedef",   "typename", "union",     "unsigned",
    "using",        "virtual", "void",      "volatile",  "while",    "and",       "or",
    "not",          "xor",     "bitand",    "bitor",     "compl",    "constexpr", "decltype",
    "static_assert"};
// Names that lathe puts beside the text, and that expressions have already.
constexpr std::string_view kTaken[] = {"Config", "Params", "entry",    "lathe",
                                       "min",    "max",    "ceil_div", "bytes",
                                       "given",  "sm",     "sm_a",     "multiprocessors"};

}  // namespace

Status Names::add(const Entry& entry, std::initializer_list<std::string> made) {
  const std::string& name = entry.name;
  const bool letters =
      std::ranges::all_of(name, [](char c) { return is_alphanumeric(c) || c == '_'; });
  const bool good = !name.empty() && name.size() <= kMostNameBytes && letters &&
                    !is_digit(name[0]) && name[0] != '_' && name.find("__") == name.npos;
  if (!good) {
    return refuse(entry, text("is no name; allowed are letters, digits and single _, from a "
                              "letter on, up to ",
                              kMostNameBytes));
  }
  if (std::ranges::find(kKeywords, name) != std::end(kKeywords)) {
    return refuse(entry, "is a word of C++; allowed is any other name");
  }
  const bool dtype =
      std::ranges::any_of(kDtypes, [&](const DtypeInfo& each) { return name == each.word; });
  if (dtype || std::ranges::find(kTaken, name) != std::end(kTaken)) {
    return refuse(entry, "has a meaning of its own here; allowed is any other name");
  }
  if (!known_.insert(name).second) {
    return refuse(entry, "is a name that is taken already; allowed is one name for one thing");
  }
  for (const std::string& each : made) {
    if (!known_.insert(each).second) {
      return refuse(entry, text("makes the name ", each, ", which is taken already"));
    }
  }
  return {};
}

}  // namespace lathe::own
