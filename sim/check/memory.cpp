// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Allocations come, go and are found.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sim/check/memory_state.h"
#include "sim/exec/warp.h"

namespace sim {
namespace {

constexpr uint64_t kGuard = 512;
constexpr uint64_t kQuarantineBytes = 256ull << 20;
constexpr size_t kQuarantineCount = 4096;

// Each 16-bit half is a NaN as f16 and as bf16, each word as f32, each pair of words as f64.
void poison(void* at, uint64_t bytes, uint64_t seed) {
  const uint64_t r = mix(seed);
  uint64_t pattern = 0;
  for (int k = 0; k < 4; ++k) pattern |= (0x7FF0ull | (r >> (4 * k) & 15)) << (16 * k);
  auto* p = static_cast<uint8_t*>(at);
  for (uint64_t k = 0; k + 8 <= bytes; k += 8) std::memcpy(p + k, &pattern, 8);
  std::memcpy(p + bytes / 8 * 8, &pattern, bytes % 8);
}

// In the order of MemoryKind.
constexpr const char* kKindNames[] = {"device allocation",     "pinned host allocation",
                                      "registered host range", "managed allocation",
                                      "module variable",       "mapped range"};

// "freed device allocation of 64 bytes at 0x7f00", with its article.
std::string text_of(const Allocation& a) {
  return std::string("a ") + (a.freed ? "freed " : "") + kKindNames[static_cast<int>(a.kind)] +
         " of " + std::to_string(a.bytes) + " bytes at " + hex(a.base);
}

bool counts_against_limit(MemoryKind kind) {
  return kind == MemoryKind::device || kind == MemoryKind::managed;
}

}  // namespace

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Memory::Memory(int device, uint64_t limit_bytes) : state_(std::make_unique<State>()) {
  state_->device = device;
  state_->limit = limit_bytes;
}

Memory::~Memory() = default;

uint64_t Memory::allocate(uint64_t bytes, MemoryKind kind, uint64_t seed) {
  State& s = *state_;
  if (bytes == 0) return 0;
  {
    const std::unique_lock lock(s.mutex);
    if (counts_against_limit(kind)) {
      if (bytes > s.limit || s.used > s.limit - bytes) return 0;
      s.used += bytes;
    }
  }
  auto owned = std::make_shared<Owned>();
  owned->mapped = (bytes + 2 * kGuard + 4095) / 4096 * 4096;
  void* at = bytes > (1ull << 46) ? MAP_FAILED
                                  : mmap(nullptr, owned->mapped, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  const std::unique_lock lock(s.mutex);
  if (at == MAP_FAILED) {
    if (counts_against_limit(kind)) s.used -= bytes;
    return 0;
  }
  owned->mapping = at;
  owned->base = reinterpret_cast<uint64_t>(at) + kGuard;
  owned->bytes = bytes;
  owned->kind = kind;
  owned->device = s.device;
  if (kind == MemoryKind::device || kind == MemoryKind::symbol) {
    owned->defined = std::make_unique<std::vector<uint64_t>>((bytes + 63) / 64 + 1);
    poison(reinterpret_cast<void*>(owned->base), bytes,
           seed ^ __atomic_load_n(&s.version, __ATOMIC_SEQ_CST));
  }
  const uint64_t base = owned->base;
  s.map[base] = std::move(owned);
  s.changed();
  return base;
}

bool Memory::adopt(uint64_t base, uint64_t bytes, MemoryKind kind) {
  State& s = *state_;
  const std::unique_lock lock(s.mutex);
  if (bytes == 0 || base + bytes < base) return false;
  const auto next = s.map.lower_bound(base);
  if (next != s.map.end() && next->second->base < base + bytes) return false;
  if (s.holder(base)) return false;
  auto owned = std::make_shared<Owned>();
  owned->base = base;
  owned->bytes = bytes;
  owned->kind = kind;
  owned->device = s.device;
  s.map[base] = std::move(owned);
  s.changed();
  return true;
}

std::vector<std::pair<uint64_t, uint64_t>> Memory::take_released() {
  State& s = *state_;
  const std::unique_lock lock(s.mutex);
  s.lists_released = true;
  return std::exchange(s.released, {});
}

bool Memory::release(uint64_t base) {
  State& s = *state_;
  const std::unique_lock lock(s.mutex);
  const auto it = s.map.find(base);
  if (it == s.map.end() || it->second->freed) return false;
  Owned& a = *it->second;
  if (counts_against_limit(a.kind)) s.used -= a.bytes;
  if (s.lists_released) s.released.emplace_back(a.base, a.bytes);
  s.changed();
  if (!a.mapping) {  // the caller's own memory: nothing to keep
    s.map.erase(it);
    return true;
  }
  a.freed = true;
  s.quarantine.push_back(base);
  s.quarantined += a.bytes;
  while (s.quarantine.size() > 1 &&
         (s.quarantined > kQuarantineBytes || s.quarantine.size() > kQuarantineCount)) {
    const auto oldest = s.map.find(s.quarantine.front());
    s.quarantined -= oldest->second->bytes;
    s.map.erase(oldest);
    s.quarantine.pop_front();
  }
  return true;
}

std::shared_ptr<const Allocation> Memory::find(uint64_t address) const {
  const std::shared_lock lock(state_->mutex);
  const auto* held = state_->holder(address);
  return held ? *held : nullptr;
}

std::shared_ptr<const Allocation> Memory::find_live(uint64_t address, uint64_t bytes) const {
  std::vector<const Memory*> peers;
  {
    const std::shared_lock lock(state_->mutex);
    const auto* held = state_->holder(address);
    if (held) {
      const bool good = !(*held)->freed && (*held)->contains(address, bytes);
      return good ? *held : nullptr;
    }
    peers = state_->peers;
  }
  for (const Memory* peer : peers) {  // of theirs, not of those they look into
    const std::shared_lock lock(peer->state_->mutex);
    const auto* held = peer->state_->holder(address);
    if (held && !(*held)->freed && (*held)->contains(address, bytes)) return *held;
  }
  return nullptr;
}

void Memory::look_into(Memory& peer, bool allowed) {
  {
    const std::unique_lock lock(state_->mutex);
    std::erase(state_->peers, &peer);
    if (allowed) state_->peers.push_back(&peer);
    state_->changed();
  }
  const std::unique_lock lock(peer.state_->mutex);
  std::erase(peer.state_->watchers, state_.get());
  if (allowed) peer.state_->watchers.push_back(state_.get());
}

bool Memory::charge(uint64_t bytes) {
  const std::unique_lock lock(state_->mutex);
  if (bytes > state_->limit || state_->used > state_->limit - bytes) return false;
  state_->used += bytes;
  return true;
}

void Memory::discharge(uint64_t bytes) {
  const std::unique_lock lock(state_->mutex);
  state_->used -= bytes;
}

const uint64_t* Memory::version() const { return &state_->version; }

std::string Memory::nearest(uint64_t address) const {
  const std::shared_lock lock(state_->mutex);
  const auto after = state_->map.upper_bound(address);
  const Owned* below = after == state_->map.begin() ? nullptr : std::prev(after)->second.get();
  const Owned* above = after == state_->map.end() ? nullptr : after->second.get();
  const uint64_t past = below ? address - below->base : ~0ull;
  if (below && past < below->bytes) {
    return "byte " + std::to_string(past) + " of " + text_of(*below);
  }
  const uint64_t after_end = below ? past - below->bytes : ~0ull;
  const uint64_t before = above ? above->base - address : ~0ull;
  if (!below && !above) return "no allocation exists";
  const bool use_below = after_end <= before;
  return std::to_string(use_below ? after_end : before) + " bytes " +
         (use_below ? "past the end of " : "before ") + text_of(use_below ? *below : *above);
}

void Memory::protect(uint64_t base) {
  const std::unique_lock lock(state_->mutex);
  const auto it = state_->map.find(base);
  if (it != state_->map.end()) it->second->read_only = true;
}

uint64_t Memory::used_bytes() const {
  const std::shared_lock lock(state_->mutex);
  return state_->used;
}
uint64_t Memory::limit_bytes() const { return state_->limit; }
int Memory::device() const { return state_->device; }

}  // namespace sim
