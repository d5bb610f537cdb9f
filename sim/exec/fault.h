// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file lists what a handler or a check can find; exec/report.cpp has the name, the check and
// the error of each kind, in this order.
#pragma once

#include <cstdint>

namespace sim {

enum class Fault : uint8_t {
  out_of_bounds,
  misaligned,
  read_only,
  uninitialized,
  wrong_space,
  inactive_source,
  divergent,
  barrier,
  deadlock,
  race,
  trap,
  assertion,
  undefined_value,
  in_flight,           // an access to the destination of an unfinished copy
  source_overwritten,  // a store to the source of an unfinished copy or product
  mbarrier,            // misuse
  mbarrier_overwritten,
  transactions,  // bytes expected and bytes delivered differ
  cluster_barrier,
  bulk,  // operands of a bulk copy
  tensor_map,
  leaked_group,
  registers,  // setmaxnreg
  dsmem_after_exit,
  partial_warp,
  stack_overflow,
  invalid_pc,
  partial_warpgroup,
  warpgroup,   // its warps disagree
  descriptor,  // of a matrix
  missing_fence,
  register_in_flight,
  division_by_zero,
  undefined_register,
  left_barrier,     // a barrier of the block went on without warps that have ended
  invalid_free,     // of what malloc has not given, or no longer
  member_mask,      // a lane outside the mask it names, or masks that overlap
  mbarrier_rule,    // misuse of an mbarrier after which the kernel could go on
  late_arrival,     // at an mbarrier of a block that has ended
  repeated_arrive,  // bar.arrive of a warp that has arrived in this phase
  // PTX forbids these and the hardware bears them.
  unobserved_phase,    // an arrival in a phase before any wait has seen the end of the last one
  repeated_init,       // of an mbarrier, with the same value
  narrow_scope,        // an arrival at another block's mbarrier without .cluster, or its wait
  unread_source,       // a block ends before its bulk store has read
  tile_off_repeat,     // a descriptor of a swizzled tile off its repeat has base offset 0
  unbounded_registers  // setmaxnreg without a register bound: PTX allows it to do nothing
};

}  // namespace sim
