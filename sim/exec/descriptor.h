// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Matrix descriptors of wgmma say where the 16-byte pieces of a tile lie in shared memory. The
// functions have internal linkage: builds for several instruction sets include this.
#pragma once

#include <cstdint>

namespace sim {
namespace {

struct Descriptor {
  uint32_t start = 0, leading = 0, stride = 0;  // bytes
  uint32_t width = 0;                           // of the swizzle pattern: 128, 64, 32; 0: none
  uint32_t mask = 0;
  uint32_t base_offset = 0;  // the row of the swizzle's repeat that the tile begins in, as it says

  // The same as its start says: a repeat is 1024, 512 or 256 bytes.
  uint32_t first_row() const { return start >> 7 & mask; }
};

// Returns false if bits are set that have no meaning.
[[maybe_unused]] inline bool read_descriptor(uint64_t bits, Descriptor* out) {
  constexpr uint64_t kKnown = 0xC00E3FFF3FFF3FFFull;
  constexpr uint32_t kWidths[4] = {0, 128, 64, 32}, kMasks[4] = {0, 7, 3, 1};
  out->start = static_cast<uint32_t>(bits & 0x3FFF) << 4;
  out->leading = static_cast<uint32_t>(bits >> 16 & 0x3FFF) << 4;
  out->stride = static_cast<uint32_t>(bits >> 32 & 0x3FFF) << 4;
  out->width = kWidths[bits >> 62];
  out->mask = kMasks[bits >> 62];
  out->base_offset = static_cast<uint32_t>(bits >> 49 & 7);
  return (bits & ~kKnown) == 0;
}

inline uint32_t swizzled(const Descriptor& d, uint32_t linear) {
  return linear ^ ((linear >> 7 & d.mask) << 4);
}

// Returns, for a K-major tile, the offset of the 16 bytes at byte kb (0 or 16) of row mn.
[[maybe_unused]] inline uint32_t piece_of_row(const Descriptor& d, uint32_t mn, uint32_t kb) {
  if (!d.width) return d.start + mn % 8 * 16 + mn / 8 * d.stride + kb / 16 * d.leading;
  return swizzled(d, d.start + mn % 8 * d.width + mn / 8 * d.stride + kb);
}
// Returns, for an MN-major tile, the offset of the 16 bytes at byte mb, a multiple of 16, of line
// k.
[[maybe_unused]] inline uint32_t piece_of_line(const Descriptor& d, uint32_t k, uint32_t mb) {
  if (!d.width) return d.start + k % 8 * 16 + k / 8 * d.leading + mb / 16 * d.stride;
  return swizzled(
      d, d.start + k % 8 * d.width + k / 8 * d.stride + mb / d.width * d.leading + mb % d.width);
}

}  // namespace
}  // namespace sim
