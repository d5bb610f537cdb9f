// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Bytes of a block's shared memory that asynchronous operations are using: `borrowed` while they
// are a source still to be read, `in_flight` while they are a destination still to be written.
// Counted per 4-byte word. Internal linkage: builds for several instruction sets include this.
#pragma once

#include "sim/exec/warp.h"

namespace sim {

struct AsyncMarks {
  uint16_t* borrowed = nullptr;  // by word of the block's shared memory
  uint16_t* in_flight = nullptr;
  uint64_t borrowed_words = 0, in_flight_words = 0;  // sums of the above
};

namespace {

inline void add_marks(uint16_t* words, uint64_t* sum, uint32_t offset, uint32_t bytes, int delta) {
  const uint32_t first = offset / 4, end = (offset + bytes + 3) / 4;
  for (uint32_t k = first; k < end; ++k) {
    words[k] = static_cast<uint16_t>(words[k] + delta);
  }
  *sum += static_cast<uint64_t>(static_cast<int64_t>(end - first) * delta);
}

inline bool any_mark(const uint16_t* words, uint64_t offset, uint64_t bytes) {
  for (uint64_t k = offset / 4; k < (offset + bytes + 3) / 4; ++k) {
    if (words[k]) return true;
  }
  return false;
}

// The bytes must lie within the block's shared memory. No effect in a block without marks.
[[maybe_unused]] inline void mark_borrowed(Block& block, uint32_t offset, uint32_t bytes,
                                           int delta) {
  AsyncMarks* m = block.async_marks;
  if (m) add_marks(m->borrowed, &m->borrowed_words, offset, bytes, delta);
}
[[maybe_unused]] inline void mark_in_flight(Block& block, uint32_t offset, uint32_t bytes,
                                            int delta) {
  AsyncMarks* m = block.async_marks;
  if (m) add_marks(m->in_flight, &m->in_flight_words, offset, bytes, delta);
}

// What is wrong with an ordinary access to these bytes.
enum class MarkClash : uint8_t { none, borrowed, in_flight };
[[maybe_unused]] inline MarkClash mark_clash(const AsyncMarks& m, uint64_t offset, uint64_t bytes,
                                             bool store) {
  if (m.in_flight_words && any_mark(m.in_flight, offset, bytes)) return MarkClash::in_flight;
  if (store && m.borrowed_words && any_mark(m.borrowed, offset, bytes)) return MarkClash::borrowed;
  return MarkClash::none;
}

// An asynchronous operation that `inst` starts will read these bytes through the async proxy. A
// race checker hears of it here.
[[maybe_unused]] inline void note_async_read(Warp&, const Inst&, uint32_t /*offset*/,
                                             uint32_t /*bytes*/) {}

}  // namespace
}  // namespace sim
