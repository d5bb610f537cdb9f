// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shared memory of KDA by warpgroups: a ring of records, each of a block of 16 tokens.
//
// Copies bring rows k, q and g of a block, and its rows of v. A warp that prepares works on them in
// place: k and q become ke and qg, the rows that read the state, and g becomes kd, the rows that
// are added to it (kda/sm90/preparer.cuh). The warps that walk find everything as their products
// read it.
#pragma once
#include "common/mbarrier.cuh"
#include "common/mma.cuh"
#include "common/registers.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"
#include "kda/block.cuh"

namespace lathe {

// Says whether the Config is that of a walk back.
template <class Config, class = void>
struct KdaDirection {
  static constexpr bool kBack = false;
};
template <class Config>
struct KdaDirection<Config, decltype(static_cast<void>(Config::kBack))> {
  static constexpr bool kBack = Config::kBack;
};

// Whether a walk back keeps rows of y times kda_row_scale(beta): most of them are those of dv.
template <class Config, class = void>
struct KdaRowsByBeta {
  static constexpr bool kThere = false;
};
template <class Config>
struct KdaRowsByBeta<Config, decltype(static_cast<void>(Config::kByBeta))> {
  static constexpr bool kThere = Config::kByBeta;
};

// Whether records have rows of queries: for outputs, and where another walk of the same launch has
// them, so that all its records have the same parts.
template <class Config, class = void>
struct KdaQueries {
  static constexpr bool kThere = Config::kOutput;
};
template <class Config>
struct KdaQueries<Config, decltype(static_cast<void>(Config::kGrads))> {
  static constexpr bool kThere = Config::kOutput || Config::kGrads;
};

// Whether two states are walked at once, one of values and one of keys.
template <class Config, class = void>
struct KdaTwoStates {
  static constexpr bool kThere = false;
};
template <class Config>
struct KdaTwoStates<Config, decltype(static_cast<void>(Config::kTwoStates))> {
  static constexpr bool kThere = Config::kTwoStates;
};

// Whether the records of a walk come behind those of another one.
template <class Config, class = void>
struct KdaFollows {
  static constexpr bool kThere = false;
};
template <class Config>
struct KdaFollows<Config, decltype(static_cast<void>(Config::kFollows))> {
  static constexpr bool kThere = Config::kFollows;
};

// Registers of a thread by its role, and the warps of the roles. The walkers are the first threads
// of a block; one warpgroup of them has 64 values of a head. Rows of more than 128 columns are a
// state of up to 128 registers a thread and records of which shared memory has seven: half of the
// warps prepare these. So they do beside two states.
template <class Config>
struct KdaRoles {
  static constexpr bool kWide = Config::kWidth > 128, kTwo = KdaTwoStates<Config>::kThere;
  static constexpr int kPreparing = kWide || kTwo ? 4 : 8;  // warps
  static constexpr int kWalking = Config::kThreads / 32 - kPreparing;
  static constexpr int kWalkers = kWalking / 4;  // warpgroups
  // No role has a register to spare: what can be found anew is not kept.
  static constexpr bool kTight =
      kWide || (kWalkers == 2 && !kTwo && !KdaDirection<Config>::kBack &&
                (Config::kL2Norm || Config::kGate != 0 || Config::kSaved ||
                 sizeof(typename Config::GateElement) == 4));
  // A walk back prepares rows of queries by two squares more than a walk forward. One that gives
  // outputs has these beside the state.
  static constexpr bool kOutputs = Config::kOutput && !KdaDirection<Config>::kBack && !kTight;
  static constexpr int kPreparingRegisters = kWide || kTwo   ? 104
                                             : kWalkers == 1 ? 128
                                             : kOutputs      ? 96
                                                             : 104;
  static constexpr int kWalkingRegisters = kWide           ? 200
                                           : kTwo          ? 192
                                           : kWalkers == 1 ? 240
                                           : kOutputs      ? 160
                                                           : 152;
};

// [kSlots records][kSlots small parts of records][barriers][a triangle for each preparing warp]
//
// A record is panels of 64 columns of K, each 48 rows of 128 bytes: 16 of ke, of qg, of kd, or 32
// rows where nobody reads qg; and a panel of 16 rows of v for each 64 values. Chunks lie
// in the order of the 128-byte swizzle. Its small part is squares, decays in the order in which
// accumulators take them, and float32 numbers of the tokens.
template <class Config>
struct KdaWarpgroupsSmem {
  using Block = KdaBlock<Config>;
  using Roles = KdaRoles<Config>;
  static constexpr int kPanels = Config::kWidth / 64;
  static constexpr int kRows = 16 * 128, kValuePanel = 16 * 128;
  static constexpr int kQ = kRows, kG = (KdaQueries<Config>::kThere ? 2 : 1) * kRows;  // in a panel
  static constexpr int kPanel = kG + kRows;
  static constexpr int kValues = kPanels * kPanel;  // in a record
  static constexpr int kRecord = kValues + Roles::kWalkers * kValuePanel;
  static constexpr int kScores = 0, kInverse = KdaSquare::kBytes;  // in a small part: squares.cuh
  // What makes vn of x, where a walk keeps it: the place of scores, unless they are wanted too.
  static constexpr bool kBoth = Config::kSaved && Config::kOutput;
  static constexpr int kMade = kBoth ? kInverse + KdaSquare::kBytes : kScores;
  static constexpr int kDecay = kInverse + (kBoth ? 2 : 1) * KdaSquare::kBytes;
  static constexpr bool kCopiedGate = sizeof(typename Config::GateElement) == 2;
  static constexpr int kLeftOut = (KdaQueries<Config>::kThere && !Config::kOutput ? 1 : 0) +
                                  (kCopiedGate ? 0 : 1);                // tiles that nobody copies
  static constexpr int kCopied = kRecord - kLeftOut * kPanels * kRows;  // bytes
  static constexpr int kDecayPitch = Config::kWidth + 32;               // bytes
  static constexpr int kLengthK = kDecay + 4 * kDecayPitch;             // |k|
  static constexpr int kNormK = kLengthK + 64;                          // 1 / |k|
  static constexpr int kScaleQ = kNormK + 64;                           // scale / |q|
  static constexpr int kFlag = kScaleQ + 64;
  static constexpr int kSmall = kFlag + 16;
  static constexpr int kTriangle = Block::kBytesOfLower;
  static constexpr int kSlots = Config::kSlots;
  static constexpr int kSmalls = kSlots * kRecord;
  static constexpr int kBarriers = kSmalls + kSlots * kSmall;
  static constexpr int kTriangles = (kBarriers + 3 * 8 * kSlots + 15) / 16 * 16;
  static constexpr int kBytes = kTriangles + Roles::kPreparing * kTriangle;
  static_assert(kSlots > Roles::kPreparing, "a copy waits for a block of another warp");
};

// A record's addresses. `landed`: its copies have arrived; `ready`: it is prepared; `empty`: all
// who walk have left it.
template <class Config>
struct KdaRecord {
  using Smem = KdaWarpgroupsSmem<Config>;
  unsigned tile, small, barriers;

  __device__ __forceinline__ KdaRecord(unsigned shared, unsigned slot)
      : tile(shared + slot * Smem::kRecord),
        small(shared + Smem::kSmalls + slot * Smem::kSmall),
        barriers(shared + Smem::kBarriers + 8 * slot) {}
  // A word: whether some decays are those of columns that are cut.
  __device__ __forceinline__ unsigned flag() const { return small + Smem::kFlag; }
  // Columns 8 n + 2 t and the next, and behind them those of n + 1.
  __device__ __forceinline__ unsigned decay(int n, int t) const {
    return small + Smem::kDecay + t * Smem::kDecayPitch + 8 * n;
  }
  __device__ __forceinline__ unsigned values(int walker) const {
    return tile + Smem::kValues + walker * Smem::kValuePanel;
  }
  __device__ __forceinline__ unsigned landed() const { return barriers; }
  __device__ __forceinline__ unsigned ready() const { return barriers + 8 * Smem::kSlots; }
  __device__ __forceinline__ unsigned empty() const { return barriers + 16 * Smem::kSlots; }

  __device__ __forceinline__ void wait_prepared(unsigned phase) const {
    mbarrier_wait(landed(), phase);  // v; what else has landed is prepared by then
    mbarrier_wait(ready(), phase);
  }
  // By a warp, before anybody uses the ring.
  static __device__ __forceinline__ void init(unsigned shared) {
    const unsigned slot = threadIdx.x % 32;
    if (slot < Smem::kSlots) {
      const KdaRecord record(shared, slot);
      mbarrier_init(record.landed(), 1);
      mbarrier_init(record.ready(), 1);
      mbarrier_init(record.empty(), Smem::Roles::kWalking);
    }
    fence_mbarrier_init();
  }
};

// The byte of a chunk's start in a row of 128 bytes.
__device__ __forceinline__ unsigned swizzled(int row, int chunk) {
  return static_cast<unsigned>(row * 128 + ((chunk ^ (row & 7)) << 4));
}

}  // namespace lathe
