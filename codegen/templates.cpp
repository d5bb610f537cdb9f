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
class Reach {
 public:
  Reach() : marked_(files_.size(), false) {}

  Status visit(std::string_view from, std::string_view source) {
    std::string_view unknown;
    Status status;
    for_each_include(source, [&](std::string_view name) {
      if (name.substr(0, kMods.size()) == kMods) return true;
      const auto found = std::lower_bound(files_.begin(), files_.end(), name, before);
      if (found == files_.end() || found->name != name) {
        status = Status(Code::internal, text(from, " includes '", name,
                                             "', which is not one of the embedded templates"));
      } else {
        status = take(static_cast<size_t>(found - files_.begin()));
      }
      return status.ok();
    });
    return status;
  }

  std::vector<const TemplateFile*> files() const {
    std::vector<const TemplateFile*> out;
    for (size_t i = 0; i < marked_.size(); ++i) {
      if (marked_[i]) out.push_back(&files_[i]);
    }
    return out;
  }

 private:
  static bool before(const TemplateFile& file, std::string_view name) { return file.name < name; }

  Status take(size_t index) {
    if (marked_[index]) return {};
    const TemplateFile& file = files_[index];
    marked_[index] = true;
    if (file.reached == nullptr) return visit(file.name, file.text);
    for (size_t i = 0; i < file.reached_count; ++i) marked_[file.reached[i]] = true;
    return {};
  }

  const std::vector<TemplateFile>& files_ = template_files();
  std::vector<bool> marked_;
};

}  // namespace

std::string TemplateFile::digest() const {
  return digest_hex != nullptr ? std::string(digest_hex) : lathe::digest(text).hex();
}

Result<std::vector<const TemplateFile*>> reached_templates(std::string_view unit) {
  Reach reach;
  LATHE_TRY(reach.visit("the emitted unit", unit));
  return reach.files();
}

}  // namespace lathe
