// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// XXH3-128 of pieces, compiled once for each set of instructions. What includes this must have no
// inline function of C++'s library: the linker keeps one of several, maybe that with AVX2.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lathe {

struct Piece {
  const void* data;
  size_t size;
};

using Xxh3 = XXH128_hash_t (*)(const Piece* pieces, size_t count);

XXH128_hash_t xxh3(const Piece* pieces, size_t count);
XXH128_hash_t xxh3_avx2(const Piece* pieces, size_t count);

namespace {

inline XXH128_hash_t xxh3_of(const Piece* pieces, size_t count) {
  if (count == 1) return XXH3_128bits(pieces->data, pieces->size);
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (size_t i = 0; i < count; ++i) XXH3_128bits_update(&state, pieces[i].data, pieces[i].size);
  return XXH3_128bits_digest(&state);
}

}  // namespace
}  // namespace lathe
