// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles the shadow of device memory: one bit per byte says whether anybody has written
// it.
#include <algorithm>

#include "sim/check/memory_state.h"

namespace sim {
namespace {

// Runs f(word, mask) over the shadow words of [from, from + count).
template <class F>
bool over_words(uint64_t from, uint64_t count, F f) {
  while (count) {
    const uint64_t at = from & 63, n = std::min<uint64_t>(64 - at, count);
    const uint64_t mask = (n == 64 ? ~0ull : (1ull << n) - 1) << at;
    if (!f(from / 64, mask)) return false;
    from += n;
    count -= n;
  }
  return true;
}

uint64_t load_word(const std::vector<uint64_t>& bits, uint64_t k) {
  return __atomic_load_n(&bits[k], __ATOMIC_RELAXED);
}

}  // namespace

void Memory::define(uint64_t address, uint64_t bytes) {
  const std::shared_lock lock(state_->mutex);
  while (bytes) {
    const auto* held = state_->holder(address);
    if (!held) return;
    const Owned& a = **held;
    const uint64_t from = address - a.base, count = std::min(bytes, a.bytes - from);
    if (a.defined) {
      over_words(from, count, [&](uint64_t k, uint64_t mask) {
        __atomic_fetch_or(&(*a.defined)[k], mask, __ATOMIC_RELAXED);
        return true;
      });
    }
    address += count;
    bytes -= count;
  }
}

void Memory::undefine(uint64_t address, uint64_t bytes) {
  const std::shared_lock lock(state_->mutex);
  const auto* held = state_->holder(address);
  if (!held || !(*held)->defined || !(*held)->contains(address, bytes)) return;
  const Owned& a = **held;
  over_words(address - a.base, bytes, [&](uint64_t k, uint64_t mask) {
    __atomic_fetch_and(&(*a.defined)[k], ~mask, __ATOMIC_RELAXED);
    return true;
  });
}

void Memory::copy_definedness(uint64_t to, uint64_t from, uint64_t bytes) {
  const std::shared_lock lock(state_->mutex);
  const auto* target = state_->holder(to);
  const auto* source = state_->holder(from);
  if (!target || !(*target)->defined) return;
  const Owned& t = **target;
  const Owned* s = source ? source->get() : nullptr;
  for (uint64_t k = 0; k < bytes; ++k) {
    const uint64_t i = to - t.base + k;
    if (i >= t.bytes) return;
    bool defined = true;
    if (s && s->defined && s->contains(from + k, 1)) {
      const uint64_t j = from - s->base + k;
      // Whole words at once where both sides are aligned.
      if (i % 64 == 0 && j % 64 == 0 && bytes - k >= 64 && t.bytes - i >= 64 &&
          s->bytes - j >= 64) {
        __atomic_store_n(&(*t.defined)[i / 64], load_word(*s->defined, j / 64), __ATOMIC_RELAXED);
        k += 63;
        continue;
      }
      defined = load_word(*s->defined, j / 64) >> (j % 64) & 1;
    }
    uint64_t* word = &(*t.defined)[i / 64];
    if (defined)
      __atomic_fetch_or(word, 1ull << (i % 64), __ATOMIC_RELAXED);
    else
      __atomic_fetch_and(word, ~(1ull << (i % 64)), __ATOMIC_RELAXED);
  }
}

uint64_t Memory::first_undefined(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(state_->mutex);
  const auto* held = state_->holder(address);
  if (!held || !(*held)->defined) return UINT64_MAX;
  const Owned& a = **held;
  const uint64_t from = address - a.base, count = std::min(bytes, a.bytes - from);
  uint64_t found = UINT64_MAX;
  over_words(from, count, [&](uint64_t k, uint64_t mask) {
    const uint64_t missing = mask & ~load_word(*a.defined, k);
    if (missing) found = a.base + k * 64 + static_cast<uint64_t>(__builtin_ctzll(missing));
    return missing == 0;
  });
  return found;
}

}  // namespace sim
