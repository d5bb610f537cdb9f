// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Finds the embedded files that a unit reaches, through its include lines and theirs.
#include "codegen/templates.h"

#include <algorithm>

#include "codegen/base/digest.h"
#include "codegen/base/text.h"
#include "codegen/includes.h"

namespace lathe {
namespace {

constexpr std::string_view kMods = "caller/";

// Marks what a text reaches, by index in the table.
Status reach(std::string_view from, std::string_view source, std::vector<bool>* marked) {
  const std::vector<TemplateFile>& files = template_files();
  Status status;
  for_each_include(source, [&](std::string_view name) {
    if (name.starts_with(kMods)) return true;
    const auto found = std::ranges::lower_bound(files, name, {}, &TemplateFile::name);
    if (found == files.end() || found->name != name) {
      status = Status(Code::internal, text(from, " includes '", name,
                                           "', which is not one of the embedded templates"));
      return false;
    }
    const auto index = static_cast<size_t>(found - files.begin());
    if ((*marked)[index]) return true;
    (*marked)[index] = true;
    for (size_t i = 0; i < found->reached_count; ++i) (*marked)[found->reached[i]] = true;
    if (found->reached == nullptr) status = reach(found->name, found->text, marked);
    return status.ok();
  });
  return status;
}

}  // namespace

std::string TemplateFile::digest() const {
  return digest_hex != nullptr ? std::string(digest_hex) : lathe::digest(text).hex();
}

Result<std::vector<const TemplateFile*>> reached_templates(std::string_view unit) {
  const std::vector<TemplateFile>& files = template_files();
  std::vector<bool> marked(files.size());
  LATHE_TRY(reach("the emitted unit", unit, &marked));
  std::vector<const TemplateFile*> out;
  for (size_t i = 0; i < files.size(); ++i) {
    if (marked[i]) out.push_back(&files[i]);
  }
  return out;
}

}  // namespace lathe
