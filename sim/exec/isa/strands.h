// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The strands of a warp split, meet, wait and go on through these functions.
#pragma once

#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {

// `blocked` means that the instruction was not executed and will be tried again.
enum class Step : uint8_t { next, switch_strand, blocked, stopped };

void add_strand(Warp& w, uint32_t pc, uint32_t mask, int32_t node, uint32_t depth);
void remove_strand(Warp& w, int index);
// A strand of node n ended: it arrived with `mask`, or exited (0).
void leave(Warp& w, int32_t n, uint32_t mask);
// The current strand goes two ways.
Step diverge(Warp& w, const Inst& in, uint32_t taken, uint32_t pc);
Step branch_table(Warp& w, const Inst& in, uint32_t exec, uint32_t pc);
// These functions of calls.cpp lead into a function and back.
Step call(Warp& w, const Inst& in, uint32_t exec, uint32_t& pc);
Step give_back(Warp& w, uint32_t exec, uint32_t& pc);
// Parks the lanes `exec` of the current strand; the others go on.
Step park(Warp& w, uint32_t exec, uint32_t pc, Parked kind, uint32_t sync_mask);
// The lanes `exec` of the current strand execute a convergent instruction, in groups of those that
// name the same mask. Groups that are complete execute it at once, the others park.
Step collective(Warp& w, const Inst& in, uint32_t exec, uint32_t& pc);
// Executes what a parked strand waits for, if all its lanes are there. Returns true if something
// happened.
bool try_release(Warp& w, int index);

}  // namespace sim::SIM_ISA
