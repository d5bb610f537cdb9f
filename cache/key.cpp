// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The key text (docs/cache.md): sorted lines of content, never of places. Every value is
// refused if it holds a newline, which makes the text injective.
#include "cache/key.h"

#include <algorithm>

#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "codegen/templates.h"

namespace lathe {
namespace {

// The number changes whenever the layout of the text does.
constexpr const char* kFirstLine = "lathe-key 1\n";
constexpr size_t kUsualBytes = 2048;

Status append(std::string& out, std::string_view name, std::string_view value) {
  if (value.find('\n') != value.npos)
    return Status(Code::invalid_argument,
                  text("the ", name, " of a cache key holds a newline: ", in_quotes(value)));
  for (const std::string_view part : {name, std::string_view("="), value, std::string_view("\n")})
    out += part;
  return {};
}

}  // namespace

Result<Key> make_key(std::string_view spec_text, std::string_view unit, std::string_view arch,
                     std::string_view compiler, const std::vector<std::string>& options) {
  LATHE_ASSIGN(const std::vector<const TemplateFile*> sources, reached_templates(unit));
  std::vector<std::string_view> sorted(options.begin(), options.end());
  std::sort(sorted.begin(), sorted.end());

  Key key;
  key.text.reserve(kUsualBytes);
  key.text = kFirstLine;
  LATHE_TRY(append(key.text, "arch", arch));
  LATHE_TRY(append(key.text, "compiler", compiler));
  for (const std::string_view option : sorted) LATHE_TRY(append(key.text, "option", option));
  for (const TemplateFile* source : sources) {
    key.text += "source=";
    key.text += source->name;
    key.text += ' ';
    key.text += source->digest();
    key.text += '\n';
  }
  LATHE_TRY(append(key.text, "spec", spec_text));
  LATHE_TRY(append(key.text, "unit", digest(unit).hex()));
  key.digest = digest(key.text);
  return key;
}

}  // namespace lathe
