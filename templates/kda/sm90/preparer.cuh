// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The warps that prepare records (kda/sm90/records.cuh). They take blocks of 16 tokens in turn. A
// lane has neighbouring columns of all tokens, so that products of decays over tokens are one
// multiplication each; rows of more than 128 columns are pieces, of each of which it has some. With
// e_t = alpha_0 ... alpha_t and the names of kda/block.cuh
//
//   ke_t = -k_t .* e_t     qg_t = q_t .* e_t     kd_t = k_t ./ e_t
//
// P and R are products of these rows, and the state behind the block is Diag(e_15) (h + kd^T vn).
// e and its reciprocal lie within 2^117 of each other: ke and qg are 2^57 times as large as said,
// and kd and the walkers' states 2^57 times as small, so that all lie around 1.
//
// A column whose decay goes below that is cut: where it does, it begins anew with a token whose
// factor is 1. The products of a pair then are those of the part in which its earlier token lies,
// every part in a pass of its own over the rows. No exponent is positive, and nothing
// that a later token holds reaches an earlier row: what it adds to that row's products are zeros.
#pragma once
#include "common/box_coordinates.cuh"
#include "kda/kda_backward_scan.cuh"
#include "kda/sm90/records.cuh"
#include "params/kda_warpgroups.h"

namespace lathe {

// The Config of those who walk, as the portable walk sees it.
template <class Config>
struct KdaWalkers : Config {
  static constexpr int kThreads = Config::kThreads - 32 * KdaRoles<Config>::kPreparing;
};

// Accumulators of 16 by 16 products, as store_scores reads them.
struct KdaBlockScores {
  float p[2][4] = {}, r[2][4] = {};

  __device__ __forceinline__ float queries(int h, int c, int i, int, int) const {
    return p[c][2 * h + i];
  }
  __device__ __forceinline__ float keys(int h, int c, int i, int, int) const {
    return r[c][2 * h + i];
  }
};

// The Config of a walk back: its records have the gradient of o in place of v.
template <class Config>
struct KdaBack : Config {
  static constexpr bool kOutput = true, kSaved = false, kBack = true;
};

template <class Config>
struct KdaGatesAhead;

template <class Config>
struct KdaPreparing {
  using Element = typename Config::Element;
  using Beta = typename Config::BetaElement;
  using Smem = KdaWarpgroupsSmem<Config>;
  using Record = KdaRecord<Config>;
  using Block = KdaBlock<Config>;
  using Scan = KdaScan<KdaWalkers<Config>>;
  static constexpr bool kBack = KdaDirection<Config>::kBack;
  static constexpr int kWarps = KdaRoles<Config>::kPreparing;
  static constexpr int kPieces = Config::kWidth <= 128       ? 1
                                 : Config::kWidth % 128 == 0 ? Config::kWidth / 128
                                                             : Config::kWidth / 64;
  static constexpr int kPiece = Config::kWidth / kPieces;  // columns
  static constexpr int kEach = kPiece / 32;                // of a lane in a piece
  static constexpr float kScaling = 0x1p57f, kUnscaling = 1.0f / kScaling, kLeast = 0x1p-60f;
  using Raw = Words<2 * kEach>;
  // Gates of 16 bits are copied into the record. Of wider ones each lane loads its own, a group of
  // tokens ahead: a record has no room for them.
  static constexpr bool kCopiedGate = KdaWarpgroupsSmem<Config>::kCopiedGate;
  // Tokens that are loaded at once. Norms and gates of 32 bits leave fewer registers beside pieces.
  static constexpr bool kTight = KdaRoles<Config>::kTight;
  static constexpr int kLess = (kPieces > 1 && (Config::kL2Norm || !kCopiedGate) ? 1 : 0) +
                               (kTight && !kCopiedGate && Config::kGate != kKdaGateGiven ? 1 : 0);
  static constexpr int kGroup = 4 >> kLess;
  using Gates = KdaColumns<typename Config::GateElement, kCopiedGate ? 4 : 4 * kEach, kEach>;

  const KdaMaps& maps;
  const Scan& scan;
  const KdaNumbers numbers;
  unsigned shared;
  int warp;
  const int before;  // blocks in earlier records
  static constexpr bool kFollows = kCheckpointed<Config> || KdaFollows<Config>::kThere;  // some are

  __device__ __forceinline__ KdaPreparing(const KdaMaps& tensor_maps, const Scan& walk,
                                          unsigned address, int blocks_before = 0)
      : maps(tensor_maps),
        scan(walk),
        numbers(walk.numbers()),
        shared(address),
        before(kFollows ? blocks_before : 0) {
    warp = static_cast<int>(threadIdx.x / 32) - KdaRoles<Config>::kWalking;
  }
  // Returns the record of a block, and whether the ring comes around an odd time.
  __device__ __forceinline__ Record record_of(int block) const {
    return Record(shared, (before + block) % Smem::kSlots);
  }
  __device__ __forceinline__ unsigned phase_of(int block) const {
    return (before + block) / Smem::kSlots & 1;
  }

  // The first token of a block: blocks are counted as they are walked through.
  __device__ __forceinline__ int first_of(int block) const {
    const KdaScanTile& tile = scan.tile;
    if (!kBack) return tile.first + 16 * block;
    return tile.first + 16 * (ceil_div(tile.count - tile.first, 16) - 1 - block);
  }
  __device__ __forceinline__ bool exists(int block) const {
    return scan.tile.first + 16 * block < scan.tile.count;
  }

  __device__ __forceinline__ void copy(int block) const;
  __device__ __forceinline__ bool has_room(int block) const;
  static __device__ __forceinline__ unsigned lane_at(const Record& record, int lane, int token,
                                                     int piece);
  static __device__ __forceinline__ int lane_column(int lane, int piece) {
    return piece * kPiece + kEach * lane;
  }
  __device__ __forceinline__ float logarithm(float raw, float bias, bool there) const;
  __device__ __forceinline__ void load_bias(int piece, float (&bias)[kEach]) const;
  __device__ __forceinline__ void work(const Record& record, int first,
                                       KdaGatesAhead<Config>& ahead,
                                       float (&prefix)[kPieces][kEach],
                                       float (&sum)[kPieces][kEach]) const;
  __device__ __forceinline__ void work_on_group(const Record& record, int begin, int left,
                                                int piece, const float (&bias)[kEach],
                                                KdaGatesAhead<Config>& ahead,
                                                float (&prefix)[kEach], float (&sum)[kEach],
                                                float (&squares)[2 * kGroup]) const;
  __device__ __forceinline__ void store_norms(const Record& record, int token,
                                              float (&squares)[2 * kGroup]) const;
  __device__ __forceinline__ int pass(const Record& record, int first, int part,
                                      unsigned& cut) const;
  __device__ __forceinline__ int pass(const Record& record, int first, int part, int piece,
                                      unsigned& cut) const;
  __device__ __forceinline__ void end_columns(const Record& record, int first, unsigned cut) const;
  __device__ __forceinline__ void end_piece(const Record& record, int first, int piece,
                                            unsigned cut) const;
  __device__ __forceinline__ void multiply(const Record& record, KdaBlockScores& scores) const;
  __device__ __forceinline__ unsigned triangle() const {
    return shared + Smem::kTriangles + warp * Smem::kTriangle;
  }
  __device__ __forceinline__ Beta load_beta(int block) const;
  __device__ __forceinline__ KdaSplit<Element> split_scores(const Record& record,
                                                            const float (&beta)[2],
                                                            const KdaBlockScores& scores) const;
  __device__ __forceinline__ void store_square(const Record& record, unsigned inverse,
                                               const KdaSplit<Element>& p, int bad_row) const;
  __device__ __forceinline__ void copy_square(const Record& record, unsigned inverse,
                                              int bad_row) const;
  __device__ __forceinline__ void multiply_keys(const Record& record, unsigned inverse) const;
  __device__ __forceinline__ bool finish_back(const Record& record,
                                              const KdaBlockScores& scores) const;
  __device__ __forceinline__ void load_scaled(unsigned square, const float (&factor)[4],
                                              unsigned (&to)[4]) const;
  __device__ __forceinline__ void multiply_rows(const Record& record) const;
  __device__ __forceinline__ bool finish(const Record& record, const KdaBlockScores& scores) const;
  static __device__ __forceinline__ unsigned decay_at(const Record& record, int lane, int piece,
                                                      int e) {
    const int column = lane_column(lane, piece) + e;
    return record.decay(column / 8, column % 8 / 2);
  }
  __device__ __forceinline__ void store_decays(const Record& record,
                                               const float (&sum)[kPieces][kEach]) const;
  __device__ __forceinline__ void mark_decays(const Record& record, unsigned cut,
                                              bool finite) const;
  __device__ __forceinline__ void prepare(int block, Beta beta) const;
  __device__ __forceinline__ void run() const;
};

}  // namespace lathe
