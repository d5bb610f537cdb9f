// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file lists the modifiers of opcodes, which are sets.
#pragma once

#include <cstdint>

namespace sim {

// These modifiers have no order of their own.
enum Mod : uint64_t {
  kFtz = 1ull << 0,
  kSat = 1ull << 1,
  kRelu = 1ull << 2,
  kNanMod = 1ull << 3,
  kXorsign = 1ull << 4,
  kApprox = 1ull << 5,
  kFull = 1ull << 6,
  kHi = 1ull << 7,
  kLo = 1ull << 8,
  kWide = 1ull << 9,
  kCc = 1ull << 10,
  kShiftamt = 1ull << 11,
  kLeft = 1ull << 12,
  kRight = 1ull << 13,
  kWrap = 1ull << 14,
  kClamp = 1ull << 15,
  kTo = 1ull << 16,
  kSync = 1ull << 17,
  kArrive = 1ull << 18,
  kRed = 1ull << 19,
  kAligned = 1ull << 20,
  kUni = 1ull << 21,
  kUp = 1ull << 22,
  kDown = 1ull << 23,
  kBfly = 1ull << 24,
  kIdx = 1ull << 25,
  kAll = 1ull << 26,
  kAny = 1ull << 27,
  kBallot = 1ull << 28,
  kVolatile = 1ull << 29,
  kRelaxed = 1ull << 30,
  kAcquire = 1ull << 31,
  kRelease = 1ull << 32,
  kAcqRel = 1ull << 33,
  kSc = 1ull << 34,
  kNc = 1ull << 35,
  kCacheHint = 1ull << 36,
  kCache = 1ull << 37,
  kScope = 1ull << 38,
  kSatfinite = 1ull << 39,
  kNoftz = 1ull << 40,
  kPopc = 1ull << 41,
  kWeak = 1ull << 42,
  kPackMod = 1ull << 43,
  kCluster = 1ull << 44,
  kWaitAll = 1ull << 46,
  kWaitGroup = 1ull << 47,
  kLaunchDependents = 1ull << 48,
  kWaitMod = 1ull << 49,
  kFractional = 1ull << 50,
  kMmio = 1ull << 51,
  kUnified = 1ull << 52,
  kMbarrierInit = 1ull << 53,
  kEntry = 1ull << 54
};

// Form::detail holds these modifiers of the asynchronous family.
enum AsyncMod : uint32_t {
  kNoinc = 1u << 0,
  kExpectTx = 1u << 1,
  kNoComplete = 1u << 2,
  kParity = 1u << 3,
  kMulticast = 1u << 4,
  kBulkGroup = 1u << 5,   // completes by a bulk group
  kCompleteTx = 1u << 6,  // completes on an mbarrier
  kReadOnly = 1u << 7,    // wait_group.read
  kByteMask = 1u << 8,    // .cp_mask
  kIncrease = 1u << 9,    // setmaxnreg.inc
  kClusterScope = 1u << 10,
  kFenceAsync = 1u << 11,  // fence.proxy.async
  kFenceInit = 1u << 12,   // fence.mbarrier_init
  kFenceTensorMap = 1u << 13
};

// Form::detail holds these modifiers of the tensor family.
enum TensorMod : uint32_t {
  kTensorSync = 1u << 0,
  kTensorAligned = 1u << 1,
  kTensorRow = 1u << 2,
  kTensorCol = 1u << 3,
  kTensorTrans = 1u << 4,
  kTensorSat = 1u << 5,
  kTensorAnd = 1u << 6,
  kTensorXor = 1u << 7,
  kTensorPopc = 1u << 8,
  kTensorX1 = 1u << 9,
  kTensorX2 = 1u << 10,
  kTensorX4 = 1u << 11,
  kTensorSecondRow = 1u << 12,  // the layout of B, after that of A
  kTensorSecondCol = 1u << 13,
  kTensorPartA = 1u << 14,  // wmma.load.a and so on
  kTensorPartB = 1u << 15,
  kTensorPartC = 1u << 16,
  kTensorPartD = 1u << 17
};

}  // namespace sim
