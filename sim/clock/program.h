// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A Program is the code of one kernel as a multiprocessor issues it: which unit each instruction
// keeps busy, and what it waits for. It is made from machine code (listing.h), whose control bits
// are ptxas's own schedule, or from PTX (ptx_program.h), with a schedule of our own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sim::clock {

// A Unit executes instructions. Those up to `tensor` belong to one of the four parts of a
// multiprocessor, the others to all of it.
enum class Unit : uint8_t {
  control,  // branches, barriers of a warp, whatever takes an issue slot alone
  fma,      // multiply and add of float32
  heavy,    // the half of it that multiplies integers
  alu,      // integers, logic, comparisons
  half,     // pairs of 16-bit floats
  fp64,
  math,     // ex2, rcp, sin ...
  convert,  // between types
  uniform,  // one value for all lanes
  tensor,   // mma.sync
  wgmma,
  shared,  // ld.shared, st.shared, ldmatrix, stmatrix
  global,  // loads, stores, atomics of global and local memory
  copy,    // cp.async
  tma,     // bulk and tensor copies
  shuffle,
  constant  // loads of constants and special registers
};
constexpr int kUnits = static_cast<int>(Unit::constant) + 1;
constexpr int kOwnUnits = static_cast<int>(Unit::wgmma) + 1;  // of one part of a multiprocessor
extern const char* const kUnitNames[kUnits];

// An OpKind says how an instruction takes part in the order of things, beside keeping its unit
// busy.
enum class OpKind : uint8_t {
  none,
  load,  // a scoreboard tells when it is done
  store,
  atomic,  // a load and a store
  branch,  // may go to Op::target
  call,    // goes there, and comes back
  ret,
  exit,
  barrier,         // waits for other warps of the block
  barrier_arrive,  // does not wait
  group_commit,    // cp.async
  group_wait,
  bulk_commit,
  bulk_wait,
  mbarrier_arrive,
  mbarrier_copies,  // arrives once the warp's copies have landed
  mbarrier_wait,
  wgmma_commit,
  wgmma_wait,
  cluster_arrive,  // at the barrier of the cluster
  cluster_wait,
  reconverge,  // lanes that went other ways meet here
  sleep
};

constexpr uint8_t kNoScoreboard = 7;
constexpr uint32_t kNowhere = 0xFFFFFFFF;

struct Op {
  int line = 0;  // of the PTX
  Unit unit = Unit::control;
  OpKind kind = OpKind::none;
  uint8_t stall = 1;  // cycles until the warp's next instruction, at least
  uint8_t writes = kNoScoreboard, reads = kNoScoreboard;  // scoreboards that it sets
  uint8_t waits = 0;  // scoreboards that it waits for, a bit each
  uint8_t keep = 0;   // of a wait for groups: how many may be open
  bool guarded = false;
  bool commits = false;               // the last wgmma of a group
  bool factors_in_registers = false;  // wgmma: A
  float tensor = 0;                   // cycles of the tensor cores at their full rate
  uint16_t columns = 0;               // wgmma: n
  uint32_t target = kNowhere;         // of a branch: where it leads, if to one place
  std::vector<uint32_t> targets;      // all places
  // Registers that a matrix instruction writes and others read: the hardware waits for these by
  // itself.
  uint16_t result = 0, result_count = 0;
  uint16_t sources[6] = {};
  uint8_t source_counts[6] = {};
  uint8_t source_places[6] = {};  // among the operands
  uint8_t kept = 0;               // a bit of each source that stays beside the unit (".reuse")
  uint8_t bank_reads[2] = {};     // registers of even and of odd numbers that have to be read
  std::string text;               // the instruction, for reports
};

struct Program {
  std::vector<Op> ops;
  bool machine_code = false;
  std::string made_by;     // "ptxas 13.0 and nvdisasm 13.5", or why it is from PTX
  uint32_t registers = 0;  // of a thread
};

}  // namespace sim::clock
