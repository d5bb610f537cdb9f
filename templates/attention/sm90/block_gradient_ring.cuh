// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The shared memory of a block step's backward by warpgroups, and the warp that fills it: it walks
// the rows that see the tile's keys and sends each visit of each head along with its queries.
#pragma once
#include "attention/ranges.cuh"
#include "attention/sm90/gradient_ring.cuh"
#include "attention/sm90/visit_messages.cuh"

namespace lathe {

// [the backward's][keys of a visit alone][messages][the walk's queue]
template <class Config>
struct AttentionBlockBackwardWarpgroupsSmem {
  using Ring = AttentionBackwardWarpgroupsSmem<Config>;
  static constexpr int kVisitKeys = (Ring::kBytes + 1023) / 1024 * 1024;
  static constexpr int kMessages = kVisitKeys + Ring::kK;
  static constexpr int kQueue = kMessages + VisitMessages<Config::kStages>::kBytes;
  static constexpr int kBytes = kQueue + VisitQueue::kBytes;
};

// A message also tells, beside its visit, the query head and which keys make dq. Those of
// other ranges, or of none, may hold anything: where the tile has such keys dq is made of a copy
// without them, which a visit of other keys than the last such visit wants anew.
enum MessageWord { kHeadWord, kKeysWord };
enum VisitKeys { kAllKeys, kVisitKeys, kNewVisitKeys };

template <class Config>
struct BlockGradientProducer {
  using Smem = AttentionBackwardWarpgroupsSmem<Config>;
  using Messages = VisitMessages<Config::kStages>;
  static constexpr int kM = Config::kTileM, kN = Config::kTileN;

  const AttentionBlockBackwardWarpgroupsParams& p;
  const GradientRing<Config>& ring;
  const Messages messages;
  const VisitQueue queue;
  volatile KeyTile* const tile;

  __device__ __forceinline__ auto walk() const {
    const AttentionBackwardParams& b = p.main.backward;
    const int first = tile->first, last = minimum(first + kN, b.seq_k) - 1;
    return RangeWalk<RowsOfKeys<kM, kN>, VisitMask<Config>>{
        queue,
        {{static_cast<const int*>(p.ranges), p.range_count, b.seq_q, b.seq_k, b.window_left,
          b.window_right},
         first,
         last},
        {captures_of(b), tile->sequence, tile->first_head, tile->end_head},
        nullptr};
  }
  // Which keys a visit has, and keeps in mind whose copy there will be.
  __device__ __forceinline__ int keys_of(int visit, int& held_first, int& held_last) const {
    const int first = queue.first(visit), last = queue.last(visit);
    const int begin = tile->first, end = minimum(begin + kN, p.main.backward.seq_k);
    if (first <= begin && last >= end) return kAllKeys;
    if (first == held_first && last == held_last) return kVisitKeys;
    held_first = first, held_last = last;
    return kNewVisitKeys;
  }

  // Rows of q or dout of a visit.
  template <int kWidth>
  __device__ __forceinline__ void copy_rows(unsigned to, const TensorMap& map, unsigned full,
                                            int head, int at, int end) const {
#pragma unroll
    for (int panel = 0; panel < kWidth / 64; ++panel) {
      copy_box(to + panel * kM * 128, map, full, panel * 64, kRaggedRows - end + at, head, end,
               tile->sequence);
    }
  }
  template <int kWidth>
  __device__ __forceinline__ void copy_keys(unsigned to, const TensorMap& map,
                                            unsigned full) const {
#pragma unroll
    for (int panel = 0; panel < kWidth / 64; ++panel) {
      copy_box(to + panel * kN * 128, map, full, panel * 64, tile->first, tile->kv_head,
               tile->sequence);
    }
  }

  // One visit of one head.
  __device__ __forceinline__ void send(const PipelineState<Config::kStages>& state, int visit,
                                       int head, bool more, int keys, bool begins) const {
    constexpr int kEach = kM / 32;
    const AttentionBackwardParams& b = p.main.backward;
    const int lane = threadIdx.x % 32, at = queue.at(visit), end = queue.end(visit);
    const unsigned message = messages.of(state), q_full = ring.q_full(state.stage);
    const unsigned dout_full = ring.dout_full(state.stage);
    const long long from =
        (static_cast<long long>(tile->sequence) * b.heads + head) * b.seq_q + at + lane;
    float lse2[kEach], delta[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const bool inside = at + lane + 32 * i < end;
      lse2[i] = inside ? load_element(static_cast<const float*>(b.lse2) + from + 32 * i)
                       : -minus_infinity();
      delta[i] = inside ? load_element(static_cast<const float*>(b.delta) + from + 32 * i) : 0.0f;
    }
    mbarrier_wait(ring.q_empty(state.stage), state.phase ^ 1);
    if (lane == 0) {
      messages.put_word(message, kHeadWord, head);
      messages.put_word(message, kKeysWord, keys);
    }
    messages.template put<false>(message, queue, visit, more);
    if (lane == 0) {
      mbarrier_arrive_expect(q_full, Smem::kQ + (begins ? Smem::kK : 0));
      if (begins) copy_keys<Config::kWidth>(ring.k(), p.main.k, q_full);
      copy_rows<Config::kWidth>(ring.q(state.stage), p.main.q, q_full, head, at, end);
    }
    __syncwarp();
    mbarrier_wait(ring.dout_empty(state.stage), state.phase ^ 1);
    if (lane == 0) {
      mbarrier_arrive_expect(dout_full, Smem::kDout + (begins ? Smem::kV : 0));
      if (begins) copy_keys<Config::kValueWidth>(ring.v(), p.main.v, dout_full);
      copy_rows<Config::kValueWidth>(ring.dout(state.stage), p.main.dout, dout_full, head, at, end);
    }
    __syncwarp();
    const unsigned to = ring.rows(state.stage) + 4 * lane;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      store_shared(to + 128 * i, bit_cast<unsigned>(lse2[i]));
      store_shared(to + 4 * kM + 128 * i, bit_cast<unsigned>(delta[i]));
    }
    mbarrier_arrive(dout_full);
  }

  __device__ __forceinline__ void run() const {
    const auto visits = walk();
    PipelineState<Config::kStages> state;
    visits.start();
    visits.append(0);
    if (queue.is(0, VisitKind::end)) {  // which the message tells
      messages.template put<false>(messages.of(state), queue, 0, false);
      if (threadIdx.x % 32 == 0) mbarrier_arrive(ring.q_full(0));
      return;
    }
    int held_first = 0, held_last = 0;
    bool more = true;
#pragma unroll 1
    for (int visit = 0; more; ++visit) {
      visits.append(visit + 1);
      more = !queue.is(visit + 1, VisitKind::end);
      int keys = keys_of(visit, held_first, held_last);
#pragma unroll 1
      for (int head = tile->first_head; head < tile->end_head; ++head) {
        const bool last = head + 1 == tile->end_head;
        send(state, visit, head, more || !last, keys, visit == 0 && head == tile->first_head);
        if (keys == kNewVisitKeys) keys = kVisitKeys;
        state.next();
      }
    }
  }
};

}  // namespace lathe
