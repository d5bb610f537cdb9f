// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/check/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>

#include "sim/exec/warp.h"

namespace sim {
namespace {

constexpr uint64_t kGuard = 512;
constexpr uint64_t kQuarantineBytes = 256ull << 20;
constexpr size_t kQuarantineCount = 4096;

// An allocation that owns its bytes; they live as long as somebody holds it.
struct Owned : Allocation {
  void* mapping = nullptr;
  size_t mapped = 0;
  ~Owned() {
    if (mapping) munmap(mapping, mapped);
  }
};

// Each 16-bit half is a NaN as f16 and as bf16, each word as f32, each pair of words as f64.
void poison(void* at, uint64_t bytes, uint64_t seed) {
  const uint64_t r = mix(seed);
  uint64_t pattern = 0;
  for (int k = 0; k < 4; ++k) pattern |= (0x7FF0ull | (r >> (4 * k) & 15)) << (16 * k);
  auto* p = static_cast<uint8_t*>(at);
  for (uint64_t k = 0; k + 8 <= bytes; k += 8) std::memcpy(p + k, &pattern, 8);
  std::memcpy(p + bytes / 8 * 8, &pattern, bytes % 8);
}

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

const char* kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::device:
      return "device allocation";
    case MemoryKind::pinned_host:
      return "pinned host allocation";
    case MemoryKind::registered_host:
      return "registered host range";
    case MemoryKind::managed:
      return "managed allocation";
    case MemoryKind::symbol:
      return "module variable";
    case MemoryKind::mapped:
      return "mapped range";
  }
  return "allocation";
}

bool counts_against_limit(MemoryKind kind) {
  return kind == MemoryKind::device || kind == MemoryKind::managed;
}

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

struct Memory::State {
  int device = 0;
  uint64_t limit = 0, used = 0;
  std::map<uint64_t, std::shared_ptr<Owned>> map;
  std::deque<uint64_t> quarantine;
  uint64_t quarantined = 0;
  uint64_t version = 1;
  std::vector<const Memory*> peers;  // whose memory kernels of this device may use
  std::vector<State*> watchers;      // of devices that use this one's
  mutable std::shared_mutex mutex;

  const std::shared_ptr<Owned>* holder(uint64_t address) const {
    auto it = map.upper_bound(address);
    if (it == map.begin()) return nullptr;
    --it;
    return it->second->contains(address, 1) ? &it->second : nullptr;
  }
  // What anybody looked up may be stale.
  void changed() {
    __atomic_fetch_add(&version, 1, __ATOMIC_SEQ_CST);
    for (State* watcher : watchers) {
      __atomic_fetch_add(&watcher->version, 1, __ATOMIC_SEQ_CST);
    }
  }
};

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

bool Memory::release(uint64_t base) {
  State& s = *state_;
  const std::unique_lock lock(s.mutex);
  const auto it = s.map.find(base);
  if (it == s.map.end() || it->second->freed) return false;
  Owned& a = *it->second;
  if (counts_against_limit(a.kind)) s.used -= a.bytes;
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
    return "byte " + std::to_string(past) + " of a " + (below->freed ? "freed " : "") +
           kind_name(below->kind) + " of " + std::to_string(below->bytes) + " bytes at " +
           hex(below->base);
  }
  const uint64_t after_end = below ? past - below->bytes : ~0ull;
  const uint64_t before = above ? above->base - address : ~0ull;
  if (!below && !above) return "no allocation exists";
  const bool use_below = after_end <= before;
  const Owned& a = use_below ? *below : *above;
  return std::to_string(use_below ? after_end : before) + " bytes " +
         (use_below ? "past the end of" : "before") + " a " + (a.freed ? "freed " : "") +
         kind_name(a.kind) + " of " + std::to_string(a.bytes) + " bytes at " + hex(a.base);
}

void Memory::protect(uint64_t base) {
  const std::unique_lock lock(state_->mutex);
  const auto it = state_->map.find(base);
  if (it != state_->map.end()) it->second->read_only = true;
}

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

uint64_t Memory::used_bytes() const {
  const std::shared_lock lock(state_->mutex);
  return state_->used;
}
uint64_t Memory::limit_bytes() const { return state_->limit; }
int Memory::device() const { return state_->device; }

}  // namespace sim
