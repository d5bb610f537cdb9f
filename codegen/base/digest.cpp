// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// XXH3-128, the only hash there is. The header form of xxHash is used so that the library needs
// no other at run time.
#include "codegen/base/digest.h"

#include <cstring>

#include "codegen/base/xxh3.h"

namespace lathe {
namespace {

Xxh3 fastest() {
#ifdef LATHE_AVX2
  if (__builtin_cpu_supports("avx2")) return xxh3_avx2;
#endif
  return xxh3;
}

XXH128_hash_t hash(const Piece* pieces, size_t count) {
  static const Xxh3 function = fastest();
  return function(pieces, count);
}

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t form;
  XXH128_canonicalFromHash(&form, hash);
  Digest out;
  static_assert(sizeof(form.digest) == sizeof(out.bytes));
  std::memcpy(out.bytes.data(), form.digest, sizeof(form.digest));
  return out;
}

}  // namespace

std::string Digest::hex() const {
  static const char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 * bytes.size());
  for (uint8_t byte : bytes) {
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::optional<Digest> parse_digest(std::string_view hex) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  Digest out;
  if (hex.size() != 2 * out.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const size_t value = kDigits.find(hex[i]);
    if (value == kDigits.npos) return std::nullopt;
    out.bytes[i / 2] = static_cast<uint8_t>(out.bytes[i / 2] << 4 | value);
  }
  return out;
}

Digest digest(std::string_view text) {
  const Piece piece{text.data(), text.size()};
  return canonical(hash(&piece, 1));
}

Digest digest(std::string_view first, std::string_view second, std::string_view third) {
  const Piece pieces[] = {
      {first.data(), first.size()}, {second.data(), second.size()}, {third.data(), third.size()}};
  return canonical(hash(pieces, 3));
}

}  // namespace lathe
