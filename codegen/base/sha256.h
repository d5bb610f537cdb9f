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

// SHA-256 of bytes that come in pieces.
class Sha256 {
 public:
  void add(std::string_view bytes);
  // The object must not be used afterwards.
  Sha256Digest end();

 private:
  void block(const uint8_t* from);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending_{};  // the first `bytes_ % 64` are bytes of an unfinished block
  uint64_t bytes_ = 0;                 // how many were added
};

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
