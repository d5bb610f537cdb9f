// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The key of a compiled kernel: a text that a person can read, and its XXH3-128. Made in one place.
#pragma once

#include <string>
#include <vector>

#include "codegen/base/digest.h"
#include "codegen/base/status.h"
#include "codegen/spec.h"

namespace lathe {

struct Key {
  Digest digest;
  std::string text;
};

// `spec_text` is KernelSpec::text(), `compiler` Compiler::identity(). Fails if a name or value
// holds a newline or a source is unknown.
Result<Key> make_key(std::string_view spec_text, std::string_view unit, std::string_view arch,
                     std::string_view compiler, const std::vector<std::string>& options);

}  // namespace lathe
