// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The walk of a segment that leaves E and M of kda_summary.cuh at once: a warpgroup has 64 rows of
// E^T and 64 of M^T. Records are prepared once for both, and while one of the two waits for a
// product, the other one is worked on.
#pragma once
#include "kda/kda_summary.cuh"
#include "kda/sm90/walking.cuh"

namespace lathe {

// The Config of such a walk in a launch that gives outputs afterwards: its last four warps, which
// prepare too, are none of this walk's.
template <class Config>
struct KdaBoth : KdaQuiet<Config> {
  static constexpr int kThreads = Config::kThreads - 128;
  static constexpr bool kTwoStates = true;
  static constexpr bool kGrads = Config::kOutput;  // records have rows of queries
};

template <class Config>
struct KdaWalkingBoth : KdaWalking<Config> {
  using Walking = KdaWalking<Config>;
  using typename Walking::Given;
  using typename Walking::Record;
  using typename Walking::Smem;
  using typename Walking::Walkers;
  using Walking::shared, Walking::sums, Walking::tile;
  using State = KdaState<Walkers>;
  using Split = KdaSplit<typename Walking::Element, 1>;
  static_assert(Walking::kRead == 8);

  __device__ __forceinline__ KdaWalkingBoth(const KdaForwardParams& params,
                                            const KdaScanTile& where, unsigned address)
      : Walking(params, where, address) {}

  // read += (ke h)^T, of half of the columns. Nothing is waited for.
  template <int kHalf>
  __device__ __forceinline__ void read_half(const Record& record, State& state,
                                            float (&read)[8]) const {
    constexpr int kCount = Walking::kSteps / 2;
    unsigned h[kCount][4];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const auto part = state.operand(kHalf * kCount + j);
#pragma unroll
      for (int i = 0; i < 4; ++i) h[j][i] = part.word[0][i];
    }
    const WgmmaTile rows = wgmma_columns(record.tile);
    wgmma_fence_operands(read);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int step = kHalf * kCount + j;
      Wgmma<16, false, typename Walking::Element>::run(
          read, h[j], rows.at(step / 4 * Smem::kPanel + step % 4 * 32), 1);
    }
    wgmma_commit();
  }
  // Returns what was read, as it is added. Waits for all that is under way.
  static __device__ __forceinline__ Split values_of(float (&read)[8]) {
    wgmma_wait<0>();
    wgmma_fence_operands(read);
    float values[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i / 4][i % 4] = read[i];
    return Split(values);
  }
  __device__ __forceinline__ void add(const Record& record, bool cut, const Split& x,
                                      State& state) const {
    if (cut) this->template scale_state<kBeforeSum>(record, fresh_lane() % 4, state);
    this->add_values(record, state, x);
  }
  // A half of the state's columns, whose sum is there.
  template <int kHalf>
  __device__ __forceinline__ void decay(const Record& record, bool cut, State& state) const {
    constexpr int kCount = Walking::kShares / 2;
    const int t = fresh_lane() % 4;
#pragma unroll
    for (int share = kHalf * kCount; share < (kHalf + 1) * kCount; ++share) {
      const auto decays = Walking::load_decays(record, share, t);
      if (cut) {
        Walking::template scale<kBehindSum>(decays, share, state);
      } else {
        Walking::template scale<kAllOfState>(decays, share, state);
      }
    }
  }
  // One state is read, from `from`, while the other one, whose sum is under way, decays. There are
  // no registers for more than half of the rounded sums at once.
  __device__ __forceinline__ void read_and_decay(const Record& from, State& state, float (&read)[8],
                                                 const Record& record, bool cut,
                                                 State& other) const {
    read_half<0>(from, state, read);
    wgmma_wait<1>();
    wgmma_fence_operands(sums(other));
    decay<0>(record, cut, other);
    wgmma_wait<0>();
    read_half<1>(from, state, read);
    decay<1>(record, cut, other);
  }
  __device__ __forceinline__ void walk(State& ends, State& map,
                                       PipelineState<Smem::kSlots>& ring) const;
};

// While one state's sum is under way, the other one is read, and the first one decays while that
// is.
template <class Config>
__device__ __forceinline__ void KdaWalkingBoth<Config>::walk(
    State& ends, State& map, PipelineState<Smem::kSlots>& ring) const {
  Walking::scale_all(ends, Walking::Preparing::kUnscaling);
  Walking::scale_all(map, Walking::Preparing::kUnscaling);
  Record(shared, ring.stage).wait_prepared(ring.phase);
  Given given = this->load_given(Record(shared, ring.stage));
  float read[8];
  Walking::begin_read(given, read);
  read_half<0>(Record(shared, ring.stage), ends, read);
  wgmma_wait<0>();
  read_half<1>(Record(shared, ring.stage), ends, read);
  Split x = values_of(read);
  bool cut = given.cut;
#pragma unroll 1
  for (int first = tile.first; first < tile.count; first += 16) {
    const Record record(shared, ring.stage);
    add(record, cut, x, ends);
    float of_map[8] = {};
    read_and_decay(record, map, of_map, record, cut, ends);
    add(record, cut, values_of(of_map), map);
    ring.next();
    Record next(shared, ring.stage);
    if (first + 16 < tile.count) {
      next.wait_prepared(ring.phase);
    } else {
      next = record;  // it is read again, and nobody asks what for
    }
    given = this->load_given(next);
    Walking::begin_read(given, read);
    read_and_decay(next, ends, read, record, cut, map);
    x = values_of(read);
    this->leave(record);  // behind the last product, which may read it again
    cut = given.cut;
  }
  Walking::scale_all(ends, Walking::Preparing::kScaling);
  Walking::scale_all(map, Walking::Preparing::kScaling);
}

}  // namespace lathe
