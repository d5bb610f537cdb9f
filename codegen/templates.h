// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The device text embedded in the library: name -> text and digest, and which names a unit reaches.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

struct TemplateFile {
  const char* name;       // "conv/causal_conv1d.cuh"
  std::string_view text;  // first line: #line 1 "/lathe/conv/causal_conv1d.cuh"
};

const std::vector<TemplateFile>& template_files();  // sorted by name

// Every embedded file that `unit` reaches through #include "..." lines, sorted by name. Include
// lines are scanned without evaluating #if: a superset is safe. Snippets ("snippet/...") are no
// files of ours and are passed over. Fails on any other name that is not embedded.
Result<std::vector<const TemplateFile*>> reached_templates(std::string_view unit);

}  // namespace lathe
