// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// XXH3-128, the only hash there is. The header form of xxHash is used so that the library needs
// no other at run time.
#include "codegen/base/digest.h"

#include <cstring>

#include "codegen/base/hex.h"
#include "codegen/base/xxh3.h"

namespace lathe {
namespace {

const Xxh3& fastest() {
#ifdef LATHE_AVX2
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) return xxh3_avx2;
#endif
  return kXxh3Here;
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
  return hex_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::optional<Digest> parse_digest(std::string_view hex) {
  Digest out;
  if (hex.size() != 2 * out.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < hex.size(); ++i) {
    const size_t value = kHexDigits.find(hex[i]);
    if (value == kHexDigits.npos) return std::nullopt;
    out.bytes[i / 2] = static_cast<uint8_t>(out.bytes[i / 2] << 4 | value);
  }
  return out;
}

Digest digest(std::string_view text) { return canonical(fastest().hash(text.data(), text.size())); }

Digester::Digester() {
  static_assert(sizeof(state_) == sizeof(XXH3_state_t) &&
                alignof(Digester) == alignof(XXH3_state_t));
  fastest().begin(state_.data());
}

void Digester::add(std::string_view bytes) {
  fastest().add(state_.data(), bytes.data(), bytes.size());
}

void Digester::add_with_hole(std::string_view bytes, size_t hole) {
  static constexpr char kZeros[sizeof(Digest)] = {};
  add(bytes.substr(0, hole));
  add({kZeros, sizeof(kZeros)});
  add(bytes.substr(hole + sizeof(kZeros)));
}

Digest Digester::end() { return canonical(fastest().end(state_.data())); }

}  // namespace lathe
