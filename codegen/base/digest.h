// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The digest that names content: of sources, of mods, of keys and entries.
#pragma once

#include <array>
#include <cstddef>
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
// Reverses hex(): takes 32 small hexadecimal digits, or returns nothing.
std::optional<Digest> parse_digest(std::string_view hex);
Digest digest(std::string_view text);

// digest() of what comes in pieces.
class Digester {
 public:
  Digester();
  void add(std::string_view bytes);
  // As add, but with zeros where the 16 bytes at `hole` are: there a file holds its own digest.
  void add_with_hole(std::string_view bytes, size_t hole);
  Digest end();

 private:
  alignas(64) std::array<std::byte, 576> state_;  // XXH3_state_t, which no header shows
};

}  // namespace lathe
