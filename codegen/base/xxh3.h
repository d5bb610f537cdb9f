// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// XXH3-128, compiled once for each set of instructions. A file that includes this and is compiled
// with AVX2 must have no inline function of C++'s library: the linker keeps one of several.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace lathe {

struct Xxh3 {
  XXH128_hash_t (*hash)(const void* data, size_t size);
  // These hash what comes in pieces; `state` is a XXH3_state_t.
  void (*begin)(void* state);
  void (*add)(void* state, const void* data, size_t size);
  XXH128_hash_t (*end)(const void* state);
};

extern const Xxh3 xxh3_avx2;

namespace {

// For the instructions that the including file is compiled with.
constexpr Xxh3 kXxh3Here = {
    [](const void* data, size_t size) { return XXH3_128bits(data, size); },
    [](void* state) { XXH3_128bits_reset(static_cast<XXH3_state_t*>(state)); },
    [](void* state, const void* data, size_t size) {
      XXH3_128bits_update(static_cast<XXH3_state_t*>(state), data, size);
    },
    [](const void* state) { return XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state)); },
};

}  // namespace
}  // namespace lathe
