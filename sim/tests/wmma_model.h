// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Matrices as wmma loads and stores them: lines in memory, by rows or by columns.
#pragma once

#include "sim/tests/tensor_model.h"

namespace sim::test {

// A matrix in memory: lines of `stride` elements, rows or columns of it.
struct Stored {
  Matrix values;
  bool columns = false;
  int stride = 0;

  size_t index(int row, int col) const {
    return static_cast<size_t>(columns ? col * stride + row : row * stride + col);
  }
  size_t bytes(int bits) const {
    const int lines = columns ? values.cols : values.rows;
    return static_cast<size_t>(lines) * static_cast<size_t>(stride) * static_cast<size_t>(bits) / 8;
  }
};

inline std::vector<uint8_t> to_memory(const Stored& s) {
  const int bits = bits_of_type(s.values.type);
  std::vector<uint8_t> memory(s.bytes(bits));
  for (int r = 0; r < s.values.rows; ++r) {
    for (int c = 0; c < s.values.cols; ++c) {
      const size_t at = s.index(r, c) * static_cast<size_t>(bits);
      const uint64_t value = s.values.at(r, c);
      if (bits < 8) {
        memory[at / 8] |= static_cast<uint8_t>(value << at % 8);
      } else {
        std::memcpy(&memory[at / 8], &value, static_cast<size_t>(bits) / 8);
      }
    }
  }
  return memory;
}

inline Matrix from_memory(const std::vector<uint8_t>& memory, const Stored& like) {
  Matrix found = like.values;
  const size_t bytes = static_cast<size_t>(bits_of_type(found.type)) / 8;
  for (int r = 0; r < found.rows; ++r) {
    for (int c = 0; c < found.cols; ++c) {
      found.at(r, c) = 0;
      std::memcpy(&found.at(r, c), &memory[like.index(r, c) * bytes], bytes);
    }
  }
  return found;
}

}  // namespace sim::test
