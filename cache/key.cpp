// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The key text of jit_cache section 3: sorted lines of content, never of places. Every value is
// refused if it holds a newline, which makes the text injective.
#include "cache/key.h"

#include <algorithm>

#include "codegen/base/text.h"
#include "codegen/templates.h"

namespace lathe {
namespace {

// The number changes whenever the layout of the text does.
constexpr const char* kFirstLine = "lathe-key 1\n";

Status append(std::string& out, const char* name, const std::string& value) {
  if (value.find('\n') != std::string::npos)
    return Status(Code::invalid_argument,
                  text("the ", name, " of a cache key holds a newline: '", value, "'"));
  out += name;
  out += '=';
  out += value;
  out += '\n';
  return {};
}

}  // namespace

Result<Key> make_key(const KernelSpec& spec, const std::string& unit, const std::string& arch,
                     const std::string& compiler, const std::vector<std::string>& options) {
  LATHE_ASSIGN(const std::vector<const TemplateFile*> sources, reached_templates(unit));
  std::vector<std::string> sorted = options;
  std::sort(sorted.begin(), sorted.end());

  Key key;
  key.text = kFirstLine;
  LATHE_TRY(append(key.text, "arch", arch));
  LATHE_TRY(append(key.text, "compiler", compiler));
  for (const std::string& option : sorted) LATHE_TRY(append(key.text, "option", option));
  for (const TemplateFile* source : sources)
    LATHE_TRY(append(key.text, "source", source->name + (' ' + source->digest())));
  LATHE_TRY(append(key.text, "spec", spec.text()));
  LATHE_TRY(append(key.text, "unit", digest(unit).hex()));
  key.digest = digest(key.text);
  return key;
}

}  // namespace lathe
