// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Visits of a block step on their way from the producer to the consumers: a
// message lies beside each tile of a ring, and its barriers are that tile's.
//
// A warpgroup reads a message until it has computed with the scores of its visit, which is after it
// has left the tile. So there are twice as many messages as stages: whoever has left a stage has
// computed all that came before the visit in it.
#pragma once
#include "attention/visit_queue.cuh"
#include "common/mbarrier.cuh"

namespace lathe {

template <int kStages>
struct VisitMessages {
  // As a slot of the queue, and behind it whether the tile has another visit.
  static constexpr int kMoreAt = 44;
  static constexpr int kBytes = 2 * kStages * VisitQueue::kSlotBytes;
  static_assert(VisitQueue::kSlotBytes == kMoreAt + 4, "the last word of a slot is free");
  static_assert(2 * kStages == VisitQueue::kSlots, "read as slots of a queue");
  unsigned base;

  // The message of a stage of the ring, in its phase.
  __device__ __forceinline__ unsigned of(const PipelineState<kStages>& state) const {
    return state.phase * kStages + state.stage;
  }
  // By all lanes of a warp: slot `visit` of the queue becomes a message, kOrigin: with the origin.
  // The lane that arrives at the stage's barrier may do so when this returns.
  template <bool kOrigin>
  __device__ __forceinline__ void put(unsigned message, const VisitQueue& queue, int visit,
                                      bool more) const {
    const unsigned word = threadIdx.x % 32 * 4, to = slots().slot(static_cast<int>(message));
    if (word < (kOrigin ? kMoreAt : 32)) {
      store_shared_word(to + word, load_shared_word(queue.slot(visit) + word));
    } else if (word == kMoreAt) {
      store_shared_word(to + word, more ? 1 : 0);
    }
    __syncwarp();
  }
  // Words in the place of the origin, where nobody asks for one. By one lane, before the rest is
  // put.
  __device__ __forceinline__ void put_word(unsigned message, int word, int value) const {
    store_shared_word(slots().slot(static_cast<int>(message)) + 32 + 4 * word, value);
  }
  __device__ __forceinline__ int word(unsigned message, int word) const {
    return load_shared_word(slots().slot(static_cast<int>(message)) + 32 + 4 * word);
  }
  __device__ __forceinline__ bool more(unsigned message) const {
    return uniform(load_shared_word(slots().slot(static_cast<int>(message)) + kMoreAt) != 0);
  }
  __device__ __forceinline__ int at(unsigned message) const {
    return slots().at(static_cast<int>(message));
  }
  __device__ __forceinline__ int end(unsigned message) const {
    return slots().end(static_cast<int>(message));
  }
  __device__ __forceinline__ int first(unsigned message) const {
    return slots().first(static_cast<int>(message));
  }
  __device__ __forceinline__ int last(unsigned message) const {
    return slots().last(static_cast<int>(message));
  }
  __device__ __forceinline__ Visit get(unsigned message) const {
    return slots().get(static_cast<int>(message));
  }
  __device__ __forceinline__ VisitOrigin origin(unsigned message) const {
    return slots().origin(static_cast<int>(message));
  }
  __device__ __forceinline__ bool is(unsigned message, VisitKind kind) const {
    return slots().is(static_cast<int>(message), kind);
  }

 private:
  __device__ __forceinline__ VisitQueue slots() const { return {base}; }
};

}  // namespace lathe
