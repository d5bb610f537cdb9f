// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// SHA-256 and HMAC, as FIPS 180-4 and RFC 2104 write them.
#include "codegen/base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lathe {
namespace {

constexpr size_t kBlockBytes = 64;

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr uint32_t kConstants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::block(const uint8_t* from) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) {
    w[i] = static_cast<uint32_t>(from[4 * i]) << 24 | static_cast<uint32_t>(from[4 * i + 1]) << 16 |
           static_cast<uint32_t>(from[4 * i + 2]) << 8 | from[4 * i + 3];
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                           ((e & f) ^ (~e & g)) + kConstants[i] + w[i];
    const uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const uint32_t mixed[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += mixed[i];
}

void Sha256::add(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t held = bytes_ % kBlockBytes;
    const size_t taken = std::min(kBlockBytes - held, bytes.size());
    std::memcpy(&pending_[held], bytes.data(), taken);
    bytes_ += taken;
    bytes.remove_prefix(taken);
    if (bytes_ % kBlockBytes == 0) block(pending_.data());
  }
}

Sha256Digest Sha256::end() {
  const uint64_t bits = bytes_ * 8;
  // One bit, zeros, and the length in bits fill the last block.
  constexpr char kPadding[kBlockBytes] = {'\x80'};
  const size_t held = bytes_ % kBlockBytes;
  add({kPadding, held < 56 ? 56 - held : 120 - held});
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(bits >> 8 * (7 - i));
  add({length, sizeof length});
  Sha256Digest out;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<uint8_t>(state_[i / 4] >> 8 * (3 - i % 4));
  }
  return out;
}

Sha256Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.end();
}

Sha256Digest hmac_sha256(std::string_view key, std::string_view message) {
  std::string inner(kBlockBytes, '\0');
  if (key.size() > kBlockBytes) {
    inner.replace(0, sizeof(Sha256Digest), bytes_of(sha256(key)));
  } else {
    inner.replace(0, key.size(), key);
  }
  std::string outer = inner;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  Sha256 first, second;
  first.add(inner);
  first.add(message);
  second.add(outer);
  second.add(bytes_of(first.end()));
  return second.end();
}

bool same_code(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= static_cast<unsigned char>(a[i] ^ b[i]);
  return different == 0;
}

}  // namespace lathe
