// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_compose: maps of KDA's state one after another become one. Parts of a sequence on several
// ranks, or segments of a part, give S' = M S + E each (kda_summary); two of them are
//
//   (M2, E2) (M1, E1) = (M2 M1, M2 E1 + E2)     back: (M1, D1) (M2, D2) = (M2 M1, M1^T D2 + D1)
//
// and the first one of all, which starts from a state, is no map but a state: E alone. A launch is
// one level of a tree: runs of `radix` elements become one, in the place of the run's first one in
// the order of the walk, so that ranks wait for log W of them and not for W - 1. A block takes
// eight rows of E and M, or of D and M^T, through a run; it reads the M of the run's other
// elements, which nobody writes, and of the first one only what it writes, so no block waits for
// another.
//
// (Blelloch, Prefix Sums and Their Applications, 1990; the maps as in kda_summary.cuh.)
#pragma once
#include "kda/chain.cuh"

namespace lathe {

template <class Config>
using KdaComposeSmem = KdaChainSmem<Config>;

template <class Config, bool kReverse>
__device__ __forceinline__ void compose(const KdaComposeParams& p, const KdaComposeSide& side,
                                        unsigned block, unsigned shared) {
  constexpr int kRows = KdaChainSmem<Config>::kRows;
  KdaChain<Config, kReverse> chain(shared);
  const unsigned value_tiles = ceil_div(p.value_dim, kRows);
  const unsigned tiles = value_tiles + ceil_div(p.key_dim, kRows);
  unsigned other = block / tiles;
  const int tile = static_cast<int>(block % tiles) - static_cast<int>(value_tiles);
  const bool of_map = tile >= 0;
  const int row = (of_map ? tile : tile + static_cast<int>(value_tiles)) * kRows;
  const int head = static_cast<int>(other % p.value_heads);
  other /= p.value_heads;
  const int sequence = static_cast<int>(other % p.sequences);
  const int first = static_cast<int>(other / p.sequences) * p.radix * p.step;
  if (of_map && first == 0 && !side.maps) return;
  const int behind = ceil_div(side.elements - first, p.step) - 1;
  chain.links = minimum(behind, p.radix - 1);
  const long long values = static_cast<long long>(p.value_dim) * p.key_dim;
  const long long keys = static_cast<long long>(p.key_dim) * p.key_dim;
  const long long element = first * side.element_runs + head;
  const long long from = sequence * side.sequence_runs + element;
  const long long to = static_cast<long long>(sequence) * p.value_heads + element;
  const long long link_runs = p.step * side.element_runs;
  chain.key_dim = p.key_dim;
  chain.rows = minimum((of_map ? p.key_dim : p.value_dim) - row, kRows);
  chain.transitions = static_cast<const float*>(side.transitions) + (from + link_runs) * keys;
  chain.transition_stride = link_runs * keys;
  // Back, rows of M go in, which are the columns of M^T.
  chain.row_stride = of_map && kReverse ? 1 : p.key_dim;
  chain.column_stride = of_map && kReverse ? p.key_dim : 1;
  const long long row_offset = row * chain.row_stride;
  if (of_map) {
    chain.begin = static_cast<const float*>(side.transitions) + from * keys + row_offset;
    chain.to = static_cast<float*>(side.to_transitions) + to * keys + row_offset;
  } else {
    float* ends = static_cast<float*>(side.ends) + from * values + row_offset;
    chain.begin = ends;
    chain.ends = ends + link_runs * values, chain.end_stride = link_runs * values;
    chain.to = static_cast<float*>(side.to_ends) + to * values + row_offset;
  }
  if (chain.links > 0 || chain.begin != chain.to) chain.run();
}

template <class Config>
__device__ void kda_compose(const KdaComposeParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  if (static_cast<int>(blockIdx.x) < p.forward_blocks) {
    compose<Config, false>(p, p.forward, blockIdx.x, shared_address(shared));
    return;
  }
  compose<Config, true>(p, p.back, blockIdx.x - p.forward_blocks, shared_address(shared));
}

}  // namespace lathe
