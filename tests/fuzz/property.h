// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Fuzz targets share this file. A property that does not hold ends the process as a crash does. The
// functions take bytes from a target's input.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

// Names what did not hold; libFuzzer then saves the input.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (0)

namespace lathe::fuzz {

inline std::string_view as_text(const uint8_t* data, size_t bytes) {
  return {reinterpret_cast<const char*>(data), bytes};
}

// Takes the first `bytes` of `from`, or what there is.
inline std::string_view take(std::string_view& from, size_t bytes) {
  const std::string_view out = from.substr(0, bytes);
  from.remove_prefix(out.size());
  return out;
}

// Returns a number of the input's next `bytes` bytes; 0 where they are missing.
inline uint64_t take_number(std::string_view& from, size_t bytes) {
  uint64_t out = 0;
  for (const char byte : take(from, bytes)) out = out << 8 | static_cast<uint8_t>(byte);
  return out;
}

}  // namespace lathe::fuzz
