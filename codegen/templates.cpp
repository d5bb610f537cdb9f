// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which embedded files a unit reaches, through its include lines and theirs.
#include "codegen/templates.h"

#include <algorithm>

#include "codegen/base/text.h"

namespace lathe {
namespace {

constexpr std::string_view kSnippets = "snippet/";

// The name in an `#include "name"` or `#include <name>` line; empty if the line is another.
std::string_view included_name(std::string_view line) {
  const auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (line.empty() || line[0] != '#') return {};
  line.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kInclude = "include";
  if (line.substr(0, kInclude.size()) != kInclude) return {};
  line.remove_prefix(kInclude.size());
  skip_blanks();
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return {};
  const char close = line[0] == '"' ? '"' : '>';
  const size_t end = line.find(close, 1);
  return end == std::string_view::npos ? std::string_view{} : line.substr(1, end - 1);
}

const TemplateFile* find_template(std::string_view name) {
  const std::vector<TemplateFile>& files = template_files();
  const auto found = std::lower_bound(
      files.begin(), files.end(), name,
      [](const TemplateFile& file, std::string_view wanted) { return file.name < wanted; });
  return found != files.end() && found->name == name ? &*found : nullptr;
}

Status visit(std::string_view from, std::string_view source,
             std::vector<const TemplateFile*>* reached) {
  while (!source.empty()) {
    const size_t end = std::min(source.find('\n'), source.size());
    const std::string_view name = included_name(source.substr(0, end));
    source.remove_prefix(std::min(end + 1, source.size()));
    if (name.empty() || name.substr(0, kSnippets.size()) == kSnippets) continue;
    const TemplateFile* file = find_template(name);
    if (file == nullptr) {
      return Status(Code::internal, text(from, " includes '", name,
                                         "', which is not one of the embedded templates"));
    }
    if (std::find(reached->begin(), reached->end(), file) != reached->end()) continue;
    reached->push_back(file);
    LATHE_TRY(visit(file->name, file->text, reached));
  }
  return {};
}

}  // namespace

Result<std::vector<const TemplateFile*>> reached_templates(std::string_view unit) {
  std::vector<const TemplateFile*> reached;
  LATHE_TRY(visit("the emitted unit", unit, &reached));
  std::sort(reached.begin(), reached.end(), [](const TemplateFile* a, const TemplateFile* b) {
    return std::string_view(a->name) < b->name;
  });
  return reached;
}

}  // namespace lathe
