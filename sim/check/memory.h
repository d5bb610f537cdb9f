// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator sees device memory as host memory behind an allocation map and one shadow bit per
// byte that says whether anybody has written it. Global addresses are host addresses.
//
// Memory is thread-safe: the driver allocates while kernels of other streams run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

namespace sim {

// `mapped` is device memory that came with cuMemMap, or a pool's of another device.
enum class MemoryKind { device, pinned_host, registered_host, managed, symbol, mapped };

// Returns text such as "0x7f00", for findings.
std::string hex(uint64_t value);

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  MemoryKind kind = MemoryKind::device;
  int device = 0;
  bool freed = false;      // kept for a while so that a use after free is told from a wild access
  bool read_only = false;  // .const symbols
  // Bit i: byte i was written. Null: every byte counts as written (pinned, registered, managed).
  std::unique_ptr<std::vector<uint64_t>> defined;

  bool contains(uint64_t address, uint64_t size) const {
    return address >= base && address - base <= bytes && size <= bytes - (address - base);
  }
};

class Memory {
 public:
  // `limit_bytes` is what device allocations may add up to.
  Memory(int device, uint64_t limit_bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Returns fresh memory, aligned to at least 256 bytes, with guard gaps around it that no
  // allocation ever uses. The memory is filled with a NaN pattern made from the seed. Returns 0
  // when the limit is reached.
  uint64_t allocate(uint64_t bytes, MemoryKind kind, uint64_t seed);
  // Makes caller-owned host memory accessible (cuMemHostRegister). Returns false if it overlaps
  // another.
  bool adopt(uint64_t base, uint64_t bytes, MemoryKind kind);
  // Returns false if `base` is not the start of a live allocation. The bytes stay mapped in a
  // quarantine.
  bool release(uint64_t base);

  // Counts bytes against the limit without an address (cuMemCreate); returns false when the limit
  // is reached.
  bool charge(uint64_t bytes);
  void discharge(uint64_t bytes);

  // Allows kernels of this device to use the device memory of the other (peer access), or forbids
  // it again.
  void look_into(Memory& peer, bool allowed);

  // Returns the live or quarantined allocation that holds the address; null if none. The pointer
  // stays good until the allocation leaves the quarantine (never while a launch of this device
  // runs).
  std::shared_ptr<const Allocation> find(uint64_t address) const;
  // Returns the live allocation that holds the whole range; null if none.
  std::shared_ptr<const Allocation> find_live(uint64_t address, uint64_t bytes) const;
  // Grows whenever an allocation comes or goes: what was looked up before may be stale.
  // Read it atomically; code without the standard library does so too.
  const uint64_t* version() const;
  // Returns the allocation whose range is closest below or above, for reports.
  std::string nearest(uint64_t address) const;

  // Returns what was released since the last call, as addresses and sizes; the first call returns
  // nothing.
  std::vector<std::pair<uint64_t, uint64_t>> take_released();

  // Kernels may not write the allocation that starts here (.const variables).
  void protect(uint64_t base);
  // Marks bytes as written (a host copy, a memset). Ignores addresses outside allocations.
  void define(uint64_t address, uint64_t bytes);
  // Marks bytes of one allocation as not written.
  void undefine(uint64_t address, uint64_t bytes);
  // Copies the shadow along with a device-to-device copy.
  void copy_definedness(uint64_t to, uint64_t from, uint64_t bytes);
  // Returns the first undefined byte in the range, or UINT64_MAX.
  uint64_t first_undefined(uint64_t address, uint64_t bytes) const;

  uint64_t used_bytes() const;
  uint64_t limit_bytes() const;
  int device() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sim
