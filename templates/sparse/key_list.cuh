// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The keys that a row's list names, without those that are skipped, in the order of the list: tiles
// of keys are full but for the last, whatever the list looks like, and the products need no mask in
// between. One warp makes it while the others multiply, into a ring in shared memory, two tiles
// ahead of the one that is multiplied.
#pragma once
#include "common/shared_memory.cuh"
#include "sparse/row.cuh"

namespace lathe {

// [kRing keys][kCounts: of the keys made so far, when tile n was whole, at n % 4]
template <int kTileN>
struct KeyListSmem {
  // Alive are the keys of the tile that is copied and of the next one; 31 more may be found with
  // the last of those.
  static constexpr int kRing = 4 * kTileN;
  static constexpr int kCounts = 4 * kRing;
  static constexpr int kBytes = (kCounts + 16 + 127) / 128 * 128;
};

// Key `slot` of the list.
template <int kTileN>
__device__ __forceinline__ int listed_key(unsigned shared, int slot) {
  return load_shared_word(shared + slot % KeyListSmem<kTileN>::kRing * 4);
}
// How many keys tile `tile` has.
template <int kTileN>
__device__ __forceinline__ int listed_keys(unsigned shared, int tile) {
  const int made = load_shared_word(shared + KeyListSmem<kTileN>::kCounts + tile % 4 * 4);
  return minimum(maximum(made - tile * kTileN, 0), kTileN);
}

// Keys of a second cache carry a sign.
constexpr unsigned kOfExtra = 0x80000000u;

// The entries of a row's list that count.
__device__ __forceinline__ int list_length(const void* lengths, const SparseInputs& in,
                                           const SparseRow& at, int all) {
  if (lengths == nullptr) return all;
  const int own = load_element(static_cast<const int*>(lengths) + at.offset(in.seq_q, 1));
  return minimum(maximum(own, 0), all);
}

// In the registers of the warp that makes the list, the same in all lanes but for `entry`. With
// kExtra the list of the second cache follows that of the first.
template <int kTileN, bool kExtra = false>
struct KeyListMaker {
  const int* entries;
  const int* more;    // of the second cache
  int main, seen_of;  // tokens of the first list; rows of the second cache that are seen
  int shift, limit;
  long long origin;
  unsigned shared;
  int next, end;  // tokens named so far and in all, 2^shift to an entry
  int made = 0;
  int entry = -1;  // of the lane's next token: read before it is asked for

  // Part `part` of `parts` of the list.
  __device__ __forceinline__ KeyListMaker(const SparseInputs& in, const SparseRow& at,
                                          unsigned memory, int part, int parts)
      : entries(static_cast<const int*>(in.indices) +
                at.offset(in.indices_batch_stride, in.indices_token_stride) +
                at.kv_head * in.indices_head_stride),
        more(nullptr),
        main(0),
        seen_of(0),
        shift(in.block_shift),
        limit(at.limit),
        origin(at.origin),
        shared(memory) {
    main = list_length(in.topk_length, in, at, in.topk) << shift;
    int all = main;
    if constexpr (kExtra) {
      more = static_cast<const int*>(in.indices_extra) +
             at.offset(in.indices_extra_batch_stride, in.indices_extra_token_stride) +
             at.kv_head * in.indices_extra_head_stride;
      all += list_length(in.topk_length_extra, in, at, in.topk_extra);
      seen_of = at.inside ? in.keys_extra : 0;
    }
    const int each = (ceil_div(all, parts) + 31) / 32 * 32;
    const long long first = static_cast<long long>(part) * each;
    next = first < all ? static_cast<int>(first) : all;
    end = all - next < each ? all : next + each;
    read_ahead();
  }
  __device__ __forceinline__ void read_ahead() {
    const int lane_slot = next + static_cast<int>(threadIdx.x % 32);
    entry = lane_slot < end ? entry_of(lane_slot) : -1;
  }
  __device__ __forceinline__ int entry_of(int slot) const {
    if (kExtra && slot >= main) return load_element(more + (slot - main));
    return load_element(entries + (slot >> shift));
  }
  // Past entries below 0, which lists of early rows end with: their loads are under way together,
  // where the loop below would wait for each.
  __device__ __forceinline__ void skip() {
#pragma unroll 1
    while (next + 128 <= end) {
      int most = entry;
#pragma unroll
      for (int i = 1; i < 4; ++i) {
        const int lane_slot = next + 32 * i + static_cast<int>(threadIdx.x % 32);
        most = maximum(most, entry_of(lane_slot));
      }
      if (__any_sync(0xffffffffu, most >= 0)) return;
      next += 128;
      read_ahead();
    }
  }
  // Until tile `tile` is whole, or the list is at its end.
  __device__ __forceinline__ void make(int tile) {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    while (made < (tile + 1) * kTileN && next < end) {
      const int lane_slot = next + lane;
      const bool extra = kExtra && lane_slot >= main;
      const long long key = extra ? entry
                                  : (static_cast<long long>(entry) << shift) +
                                        (lane_slot & ((1 << shift) - 1)) - origin;
      const bool seen = entry >= 0 && key >= 0 && key < (extra ? seen_of : limit);
      const unsigned votes = __ballot_sync(0xffffffffu, seen);
      const int slot = made + __popc(votes & ((1u << lane) - 1));
      if (seen) {
        store_shared(shared + slot % KeyListSmem<kTileN>::kRing * 4,
                     static_cast<unsigned>(key) | (extra ? kOfExtra : 0u));
      }
      made += __popc(votes), next += 32;
      read_ahead();
      if (votes == 0) skip();
    }
    if (lane == 0) {
      store_shared(shared + KeyListSmem<kTileN>::kCounts + tile % 4 * 4,
                   static_cast<unsigned>(made));
    }
  }
};

}  // namespace lathe
