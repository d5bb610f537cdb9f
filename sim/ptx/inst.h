// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds decoded instructions over 32-lane register slots. They are plain data, without
// the standard library, as the files that are compiled once per instruction set read it.
#pragma once

#include <cstdint>

#include "sim/ptx/form.h"

namespace sim {

struct Warp;
struct Inst;
using Handler = void (*)(Warp& warp, const Inst& inst, uint32_t exec);

// A Kind says how the run loop treats an instruction. `simple` has no effect on control; `checked`
// may stop the warp (a fault); `converge` needs the lanes named by a mask together; the rest are
// the loop's own.
enum class Kind : uint8_t {
  simple,
  checked,
  converge,
  bar_warp,
  barrier,
  blocking,  // may have to be tried again: then it had no effect
  branch,
  branch_table,
  exit,
  trap,
  join,
  pause,
  call,
  ret,
  none,
  fence,
  dependents  // griddepcontrol: may have to be tried again
};

constexpr unsigned kSlotBytes = 128;  // 32 lanes of 4 bytes; 64-bit values take two
constexpr uint16_t kPredTrue = 0;     // predicate slots with a fixed meaning
constexpr uint16_t kPredCarry = 1;
constexpr uint16_t kPredFalse = 2;
constexpr uint16_t kPredFirst = 3;
constexpr uint16_t kPredNegate = 0x8000;  // set in a source operand: use its complement
constexpr uint16_t kNoSlot = 0xFFFF;
constexpr uint32_t kNoTarget = 0xFFFFFFFF;

// A WaitExit says how a branch leaves a loop that waits for another block (ptx/flow/wait_loops.h).
// It is Inst::imm of the branch.
enum WaitExit : int64_t { kNoWaitExit = 0, kLeavesByJump = 1, kLeavesByFall = 2 };

struct Inst {
  Handler fn = nullptr;
  uint16_t d = kNoSlot, a = kNoSlot, b = kNoSlot, c = kNoSlot;
  uint16_t guard = kPredTrue;  // with kPredNegate: complemented
  uint8_t counted = 1;         // 0: made by the decoder
  Kind kind = Kind::simple;
  uint32_t aux = 0;    // per family: operand list, branch target, table, flags
  int64_t imm = 0;     // per family: address offset, constant
  uint32_t extra = 0;  // join point of a branch; ordinal of a memory instruction
  uint32_t info = 0;   // index into Function::infos
};

// A CodeView is the part of a Function that handlers read.
struct CodeView {
  const Inst* code_data = nullptr;
  const uint16_t* list_data = nullptr;  // operand lists, indexed by Inst::aux
  uint32_t local_bytes = 0;             // of one thread
};

}  // namespace sim
