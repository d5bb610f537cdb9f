// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// SHA-256 by libmd, and HMAC as RFC 2104 writes it.
#include "codegen/base/sha256.h"

#include <sha2.h>

#include <initializer_list>

namespace lathe {
namespace {

Sha256Digest hash_of(std::initializer_list<std::string_view> pieces) {
  SHA2_CTX hash;
  SHA256Init(&hash);
  for (const std::string_view piece : pieces) {
    SHA256Update(&hash, reinterpret_cast<const uint8_t*>(piece.data()), piece.size());
  }
  Sha256Digest out;
  SHA256Final(out.data(), &hash);
  return out;
}

}  // namespace

Sha256Digest sha256(std::string_view bytes) { return hash_of({bytes}); }

Sha256Digest hmac_sha256(std::string_view key, std::string_view message) {
  const Sha256Digest short_key = sha256(key);
  if (key.size() > SHA256_BLOCK_LENGTH) key = bytes_of(short_key);
  std::string inner(SHA256_BLOCK_LENGTH, '\x36'), outer(SHA256_BLOCK_LENGTH, '\x5c');
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  const Sha256Digest first = hash_of({inner, message});
  return hash_of({outer, bytes_of(first)});
}

bool same_code(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace lathe
