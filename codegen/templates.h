// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The device text embedded in the library: name -> text and digest, and which names a unit reaches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

struct TemplateFile {
  const char* name;       // "conv/causal_conv1d.cuh"
  std::string_view text;  // first line: #line 1 "/lathe/conv/causal_conv1d.cuh"

  // Found when the text was embedded, so that a start reads none of it; null in a table that was
  // made otherwise, as tests do: then the text says.
  const char* digest_hex = nullptr;
  const uint16_t* reached = nullptr;  // indices in the table of all that it reaches, itself too
  size_t reached_count = 0;

  std::string digest() const;  // XXH3-128 of the text, in hex
};

const std::vector<TemplateFile>& template_files();  // sorted by name

// Returns every embedded file that `unit` reaches through #include "..." lines, sorted by name.
// Include lines are scanned without evaluating #if: a superset is safe. Mods ("caller/...") are no
// files of ours and are passed over. Fails on any other name that is not embedded.
Result<std::vector<const TemplateFile*>> reached_templates(std::string_view unit);

}  // namespace lathe
