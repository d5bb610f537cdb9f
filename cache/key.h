// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The key of a compiled kernel: a text that a person can read, and its XXH3-128. Made in one place.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/base/status.h"
#include "codegen/spec.h"

namespace lathe {

struct Digest {
  std::array<uint8_t, 16> bytes{};  // canonical (big-endian)
  std::string hex() const;
  bool operator==(const Digest&) const = default;
};
Digest digest(std::string_view text);

struct Key {
  Digest digest;
  std::string text;
};

// `compiler` is Compiler::identity(). Fails if a name or value holds a newline or a source is
// unknown.
Result<Key> make_key(const KernelSpec& spec, const std::string& unit, const std::string& arch,
                     const std::string& compiler, const std::vector<std::string>& options);

}  // namespace lathe
