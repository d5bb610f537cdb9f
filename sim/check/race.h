// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file declares the race checker for the rest of the interpreter. The checker keeps a
// happens-before order over warps (and, within a warp, lanes), and what the asynchronous proxy may
// see of it. Warp::race is null when nothing is checked; then every function here does nothing, but
// callers on hot paths ask first.
#pragma once

#include <cstdint>

#include "sim/exec/warp.h"

namespace sim {

// Carries knowledge from those who release into it to those who acquire it. Every barrier, mbarrier
// phase and cluster barrier has one, which lives until its block starts anew.
struct SyncClock;
SyncClock* race_clock(Block& owner);  // null if races are not checked
void race_clear(SyncClock* clock);
void race_release(Warp& warp, SyncClock* clock);
void race_acquire(Warp& warp, const SyncClock* clock);

// The functions below tell the race checker what the instructions do.
enum class RaceUse : uint8_t { load, store, atomic };
// Every lane of `exec` accesses `size` bytes at its address; addresses of other lanes repeat one of
// theirs. Shared addresses are offsets in the memory of `owner`, null for global ones.
void race_access(Warp& warp, const Inst& inst, const uint64_t* address, uint32_t exec,
                 uint32_t size, RaceUse use, bool dense, Block* owner);
void race_fence(Warp& warp, const Inst& inst);
// The lanes `members` have met at bar.warp.sync.
void race_warp_sync(Warp& warp, uint32_t members);
void race_barrier_arrive(Warp& warp, uint32_t id);
// The barrier is complete: `waiting` has a bit for every warp that goes on.
void race_barrier_complete(Block& block, uint32_t id, uint64_t waiting);

constexpr unsigned kWholeWarp = 32;  // as a lane: all of them, together

// These functions cover accesses through the asynchronous proxy, and cp.async. At issue, a read
// must come after the writes of its bytes, and they must have been shown to the proxy by a fence; a
// write must come after all that was done with its bytes.
void race_async_read(Warp& warp, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                     Block* owner);
// A wgmma reads 16 bytes of an operand; the caller asks whether races are checked.
void race_async_operand(Warp& warp, const Inst& inst, uint32_t offset);
void race_async_write(Warp& warp, const Inst& inst, unsigned lane, uint64_t address, uint64_t bytes,
                      Block* owner);
// The write is there. Either the waiting lane has made sure of it (groups), or an mbarrier has:
// then it is ordered before those who acquire `clock` after the next race_async_complete() of it.
void race_async_landed(Warp& warp, const Inst& inst, unsigned lane, uint64_t address,
                       uint64_t bytes, Block* owner);
void race_async_landed(SyncClock* clock, const Inst& inst, uint64_t address, uint64_t bytes,
                       Block* owner);
void race_async_complete(SyncClock* clock);
// The read is over, likewise.
void race_async_was_read(Warp& warp, const Inst& inst, unsigned lane, uint64_t address,
                         uint64_t bytes, Block* owner);
void race_async_was_read(SyncClock* clock, const Inst& inst, uint64_t address, uint64_t bytes,
                         Block* owner);
// From its issue until its lanes have waited, a copy may read its source in global memory.
struct Copy;
void race_borrow(const Copy& copy);
void race_give_back(const Copy& copy);

// These functions cover an mbarrier, and barrier.cluster: arrivals of a phase release, waits for
// its end acquire, both as far as their scopes say. The object itself is written by its init and
// its inval, and read by its uses.
struct RaceMbarrier;
RaceMbarrier* race_mbarrier(Block& owner);
void race_mbarrier_release(RaceMbarrier* barrier, Warp& warp, const Inst& inst, unsigned lane = 0);
void race_mbarrier_acquire(const RaceMbarrier* barrier, Warp& warp, const Inst& inst,
                           unsigned lane = 0);
void race_mbarrier_touch(Warp& warp, const Inst& inst, unsigned lane, uint32_t offset, RaceUse use,
                         Block& owner);
void race_mbarrier_phase(RaceMbarrier* barrier);
// A copy that completes on this mbarrier has written these bytes, and has completed.
void race_mbarrier_landed(RaceMbarrier* barrier, const Inst& inst, uint64_t address, uint64_t bytes,
                          Block* target);
void race_mbarrier_was_read(RaceMbarrier* barrier, const Inst& inst, uint64_t address,
                            uint64_t bytes, Block* source);
void race_mbarrier_complete(RaceMbarrier* barrier);
// The copies of these lanes so far have landed, and who sees the mbarrier's phase knows it; so do
// the lanes when they wait for their copies, and whoever sees a later arrival of this kind.
void race_copies_arrive(Warp& warp, uint32_t lanes, RaceMbarrier* barrier);
void race_copies_wait(Warp& warp, uint32_t lanes);

}  // namespace sim
