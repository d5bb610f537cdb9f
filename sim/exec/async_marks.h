// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Each word of shared memory that something asynchronous is using has a mark: the destination of a
// copy in flight, the source of a copy or product that may still be read, a live mbarrier. Plain
// accesses look at them only while there are any.
#pragma once

#include "sim/exec/warp.h"

namespace sim {

constexpr uint16_t kMarkMbarrier = 0x8000;
constexpr uint16_t kMarkInFlight = 0x4000;
constexpr uint16_t kMarkBorrowed = 0x3FFF;  // how many readers

// `change` is +1 or -1. Offsets are within the block's shared memory.
inline void mark_borrowed(Block& block, uint32_t offset, uint32_t bytes, int change) {
  if (!block.marks) return;
  for (uint32_t word = offset / 4; word < (offset + bytes + 3) / 4; ++word) {
    uint16_t& m = block.marks[word];
    const bool before = m != 0;
    m = static_cast<uint16_t>(m + change);
    block.marked += (m != 0) - before;
  }
}

// Does the same for 16 bytes at a multiple of 16, whose four words mostly agree.
inline void mark_borrowed_piece(Block& block, uint32_t offset, int change) {
  if (!block.marks) return;
  constexpr uint64_t kEach = 0x0001000100010001ull;
  uint64_t words;
  __builtin_memcpy(&words, block.marks + offset / 4, sizeof(words));
  const auto first = static_cast<uint16_t>(words);
  if (words != first * kEach) return mark_borrowed(block, offset, 16, change);
  const auto next = static_cast<uint16_t>(first + change);
  words = next * kEach;
  __builtin_memcpy(block.marks + offset / 4, &words, sizeof(words));
  block.marked += 4 * (static_cast<uint32_t>(next != 0) - static_cast<uint32_t>(first != 0));
}

inline void mark_flag(Block& block, uint32_t offset, uint32_t bytes, uint16_t flag, bool on) {
  if (!block.marks) return;
  const uint16_t set = on ? flag : 0, keep = on ? 0xFFFF : static_cast<uint16_t>(~flag);
  uint32_t marked = block.marked;
  for (uint32_t word = offset / 4; word < (offset + bytes + 3) / 4; ++word) {
    uint16_t& m = block.marks[word];
    const bool before = m != 0;
    m = static_cast<uint16_t>((m & keep) | set);
    marked += (m != 0) - before;
  }
  block.marked = marked;
}

inline void mark_in_flight(Block& block, uint32_t offset, uint32_t bytes, int change) {
  mark_flag(block, offset, bytes, kMarkInFlight, change > 0);
}

// Returns all marks of a range in one.
inline uint16_t marks_of(const Block& block, uint32_t offset, uint32_t bytes) {
  uint16_t all = 0;
  for (uint32_t word = offset / 4; word < (offset + bytes + 3) / 4; ++word) {
    all = static_cast<uint16_t>(all | block.marks[word]);
  }
  return all;
}

// Reports an access of [offset, offset + bytes) that collides with a mark. Returns false if there
// was one.
bool check_marks(Warp& warp, const Inst& inst, unsigned lane, const Block& block, uint32_t offset,
                 uint32_t bytes, bool store);

}  // namespace sim
