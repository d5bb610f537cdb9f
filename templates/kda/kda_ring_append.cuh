// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_ring_append: after kda_recurrent with rings, the records of its tokens but for their updates,
// and the count of each slot.
//
// It is a launch of its own because the blocks of kda_recurrent, which share a slot, read all of
// its records and its count: none of them knows when the others have. A block takes a sequence, a
// warp a token of a value head.
#pragma once
#include "common/varlen.cuh"
#include "kda/recurrent_token.cuh"

namespace lathe {

template <class Config>
__device__ void kda_ring_append(const KdaRecurrentParams& p) {
  using Element = typename Config::Element;
  using Offset = typename Config::Offset;
  constexpr int kWarps = Config::kThreads / 32;
  KdaTokenTile tile = {};
  tile.sequence = static_cast<int>(blockIdx.x);
  tile.warp = threadIdx.x / 32, tile.lane = threadIdx.x % 32;
  tile.batch = Config::kPacked ? 0 : tile.sequence;
  int tokens = p.tokens;
  if constexpr (Config::kPacked) {
    tile.start = offset_at<Offset>(p.cu_seqlens, tile.sequence, p.tokens);
    tokens = offset_at<Offset>(p.cu_seqlens, tile.sequence + 1, p.tokens) - tile.start;
  }
  const int slot = kda_slot<typename Config::Index>(p, p.state_indices, tile.sequence);
  if (slot < 0 || tokens <= 0) return;
  const KdaRing ring = kda_ring(p, slot, tokens);
  const int kept = minimum(tokens, p.ring_length - ring.first);
  const int group = p.value_heads / p.heads;
  for (int pair = tile.warp; pair < kept * p.value_heads; pair += kWarps) {
    const int token = pair / p.value_heads;
    tile.value_head = pair % p.value_heads;
    tile.head = tile.value_head / group;
    const KdaHeadGate<Config> gate(p, tile);
    KdaRawToken<Config> raw;
    raw.load_key(p, tile, token);
    const long long record = static_cast<long long>(slot) * p.ring_length + ring.first + token;
    Element* ring_k =
        static_cast<Element*>(p.ring_k) + (record * p.heads + tile.head) * Config::kKeyDim;
    float* ring_g = static_cast<float*>(p.ring_g) +
                    (record * p.value_heads + tile.value_head) * Config::kKeyDim;
    // Value heads that share a key have one record of it.
    raw.record(p, gate, tile.lane, tile.value_head % group == 0 ? ring_k : nullptr, ring_g);
  }
  __syncthreads();  // every warp has read the count
  if (threadIdx.x == 0) {
    static_cast<int*>(p.ring_count)[slot] = ring.first + (p.append != 0 ? kept : 0);
  }
}

}  // namespace lathe
