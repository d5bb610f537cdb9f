// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles products in flight. Each of the four warps of a warpgroup computes its own 16
// rows; what the four must agree on is compared, and a wait lets a warp pass only when all four
// have come as far.
#pragma once

#include "sim/exec/warp.h"

namespace sim {

struct WgmmaOp;
// Reads the factors and writes the accumulators. Each instruction set has one.
using WgmmaProduct = void (*)(Warp& warp, const WgmmaOp& op);

struct WgmmaOp {
  const Inst* inst = nullptr;
  WgmmaProduct product = nullptr;
  uint64_t a = 0, b = 0;    // descriptors
  uint32_t group = 0;       // the number its group has or will have
  bool accumulate = false;  // else D is overwritten
  bool computed = false;
  bool over = false;  // some warp of the warpgroup has waited for it
};

void wgmma_issue(Warp& w, const Inst& i, uint32_t exec, WgmmaProduct product);
void wgmma_fence(Warp& w, const Inst& i, uint32_t exec);
void wgmma_commit(Warp& w, const Inst& i, uint32_t exec);
// May block: see Warp::blocked.
void wgmma_wait(Warp& w, const Inst& i, uint32_t exec);
// Registers that a wgmma names are about to be written (the first Inst::imm of the list) or read.
void wgmma_touch(Warp& w, const Inst& i, uint32_t exec);
// Is called when the warp has ended: nothing may be left.
void wgmma_end(Warp& w);
// Says whether a product that nobody has waited for may read any of these bytes. Warps that wait
// may tell others, so one warp's wait is enough here; the marks, which stores meet, stay until each
// has waited.
bool wgmma_reads(const Block& block, uint32_t offset, uint32_t bytes);
// Says whether a wgmma.wait_group holds the warp.
bool wgmma_waits(const Warp& w);

}  // namespace sim
