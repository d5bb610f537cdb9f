// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Writes bytes as text.
#pragma once

#include <string>
#include <string_view>

namespace lathe {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

// Returns two small hexadecimal digits for each byte.
inline std::string hex_of(std::string_view bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char byte : bytes) {
    out += kHexDigits[static_cast<unsigned char>(byte) >> 4];
    out += kHexDigits[byte & 15];
  }
  return out;
}

}  // namespace lathe
