// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): for bytes that somebody may have chosen to
// deceive. The XXH3 digest of digest.h is faster, but two texts of one digest can be constructed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "codegen/base/hex.h"

namespace lathe {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest sha256(std::string_view bytes);
// The code that only a holder of `key` can compute for `message`.
Sha256Digest hmac_sha256(std::string_view key, std::string_view message);

// Compares in a time that does not tell where two codes differ.
bool same_code(std::string_view a, std::string_view b);

// Returns the bytes of a digest, for messages and for comparisons.
inline std::string_view bytes_of(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}
inline std::string hex_of(const Sha256Digest& digest) { return hex_of(bytes_of(digest)); }

}  // namespace lathe
