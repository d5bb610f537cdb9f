// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The digest that names content: of sources, of snippets, of keys and entries.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lathe {

struct Digest {
  std::array<uint8_t, 16> bytes{};  // canonical (big-endian)
  std::string hex() const;
  bool operator==(const Digest&) const = default;
};
// The inverse of hex(): 32 small hexadecimal digits, or nothing.
std::optional<Digest> parse_digest(std::string_view hex);
Digest digest(std::string_view text);
// digest() of the pieces joined: an entry is hashed without copying it.
Digest digest(std::string_view first, std::string_view second, std::string_view third);

}  // namespace lathe
