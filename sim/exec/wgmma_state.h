// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the state of products in flight: by warp, by warpgroup, by register.
#pragma once

#include <deque>
#include <vector>

#include "sim/exec/wgmma.h"
#include "sim/ptx/code.h"

namespace sim {

// A WgmmaSlot is one register slot that a wgmma names.
struct WgmmaSlot {
  uint32_t results = 0, factors = 0;     // products in flight that write it, read it
  uint32_t read_at = 0, written_at = 0;  // by other instructions: fences passed then, plus one
  uint64_t chain = 0;                    // shape and place of the last product that wrote it
  uint32_t chained_at = 0;
};

// A WgmmaState is a warp's part.
struct WgmmaState {
  std::deque<WgmmaOp> pending;
  std::vector<WgmmaSlot> slots;
  uint32_t committed = 0;  // groups
  uint32_t fences = 0;
  uint64_t sequence = 0;  // instructions of the family so far
  uint32_t target = 0;    // waiting: groups that must be complete
  bool waiting = false;
  const Inst* last = nullptr;

  void reset();
};

// A record holds what the first warp to come did; the other warps must do the same.
struct WgmmaRecord {
  uint64_t number = 0;  // sequence plus one; 0: none
  const Inst* inst = nullptr;
  uint64_t a = 0, b = 0;
  uint32_t scale = 0;
};
struct Warpgroup {
  static constexpr uint64_t kRecords = 64;
  WgmmaRecord records[kRecords];
  uint64_t length = 0;  // sequence of the first warp that ended
  bool ended = false;
};

// wgmma_operands.cpp handles registers and tiles of shared memory, from the issue to the wait. This
// function reads descriptors and scale, which are the same in every lane. It returns false if a
// fault was reported.
bool read_operands(Warp& w, WgmmaOp* op);
// Checks that there is a fence between other uses of these registers and this one.
void check_registers(Warp& w, const WgmmaOp& op);
// Marks registers and tiles as in use from here; returns false if a tile is not where one may be.
bool claim_operands(Warp& w, const WgmmaOp& op);
void release_operands(Warp& w, const WgmmaOp& op);

}  // namespace sim
