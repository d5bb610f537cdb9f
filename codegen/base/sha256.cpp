// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/base/sha256.h"

#include <array>
#include <bit>
#include <cstdint>

namespace lathe {
namespace {

constexpr size_t kBlock = 64;  // bytes
using State = std::array<uint32_t, 8>;

// The standard takes its constants from roots of the first primes: the first 32 bits of the
// fraction of the square root (power 2) or of the cube root (power 3).
constexpr uint32_t fraction_of_root(uint64_t prime, int power) {
  // The largest r with r^power <= prime * 2^(32 power), bit by bit; 32 bits of r are the fraction.
  using Wide = unsigned __int128;
  uint64_t root = 0;
  for (int bit = 36; bit >= 0; --bit) {
    const uint64_t next = root | uint64_t{1} << bit;
    // 37 bits to the third power are 111, and the prime has 9 more than 96: both fit.
    Wide raised = 1;
    for (int i = 0; i < power; ++i) raised *= next;
    if (raised <= static_cast<Wide>(prime) << (32 * power)) root = next;
  }
  return static_cast<uint32_t>(root);
}

constexpr std::array<uint32_t, 64> first_primes() {
  std::array<uint32_t, 64> primes{};
  size_t count = 0;
  for (uint32_t candidate = 2; count < primes.size(); ++candidate) {
    bool prime = true;
    for (size_t i = 0; i < count; ++i) prime = prime && candidate % primes[i] != 0;
    if (prime) primes[count++] = candidate;
  }
  return primes;
}

constexpr std::array<uint32_t, 64> round_constants() {
  std::array<uint32_t, 64> all = first_primes();
  for (uint32_t& each : all) each = fraction_of_root(each, 3);
  return all;
}

constexpr State first_state() {
  State state{};
  for (size_t i = 0; i < state.size(); ++i) state[i] = fraction_of_root(first_primes()[i], 2);
  return state;
}

void add_block(State& state, const char* bytes) {
  static constexpr std::array<uint32_t, 64> kConstants = round_constants();
  std::array<uint32_t, 64> words{};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      words[i] = words[i] << 8 | static_cast<unsigned char>(bytes[4 * i + j]);
    }
  }
  for (size_t i = 16; i < words.size(); ++i) {
    const uint32_t near = words[i - 2], far = words[i - 15];
    words[i] = words[i - 16] + words[i - 7] + (std::rotr(far, 7) ^ std::rotr(far, 18) ^ far >> 3) +
               (std::rotr(near, 17) ^ std::rotr(near, 19) ^ near >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t one = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                         ((e & f) ^ (~e & g)) + kConstants[i] + words[i];
    const uint32_t two =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const State after = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += after[i];
}

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  static constexpr State kFirst = first_state();
  State state = kFirst;
  const size_t whole = bytes.size() / kBlock * kBlock;
  for (size_t at = 0; at < whole; at += kBlock) add_block(state, &bytes[at]);
  // The end: a one bit, zeros, and the length in bits as 64 bits that end a block.
  std::string tail(bytes.substr(whole));
  tail += '\x80';
  tail.resize(tail.size() + 8 <= kBlock ? kBlock : 2 * kBlock, '\0');
  uint64_t bits = uint64_t{8} * bytes.size();
  for (size_t at = tail.size(); at-- > tail.size() - 8; bits >>= 8) {
    tail[at] = static_cast<char>(bits & 0xff);
  }
  for (size_t at = 0; at < tail.size(); at += kBlock) add_block(state, &tail[at]);
  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 28; shift >= 0; shift -= 4) hex += "0123456789abcdef"[word >> shift & 15];
  }
  return hex;
}

}  // namespace lathe
