// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_pieces: states go through the pieces of sequences, in the order that lists on the device say.
// A piece is a run of tokens of one sequence on one rank, with the map S' = M S + E, and back
// dS = M^T dS' + D (kda_summary). A walk begins with an element's E, or with the state that a piece
// is given, goes through the maps of further elements, and leaves the states that pieces begin with
// on its way. It may make one element of all, with E and M: a tree has such walks on its levels.
//
// A block takes eight rows of E, or of M, through a walk. Walks of one launch do not meet, and rows
// do not either, so no block waits for another.
#pragma once
#include "kda/chain.cuh"
#include "params/kda_pieces.h"

namespace lathe {

template <class Config>
using KdaPiecesSmem = KdaChainSmem<Config>;

// Finds what a walk of one row of the batch and one value head reads and writes.
template <class Config>
struct KdaPieceLinks {
  static constexpr bool kListed = true;

  const KdaPiecesParams* p;
  const KdaPiecesSide* side;
  const KdaPieceStep* steps;
  KdaPieceWalk walk;
  int batch, head, row;
  bool of_map;

  __device__ __forceinline__ int element(int step) const {
    return load_element(&steps[step].element);
  }
  // Returns the number of an element's matrix of this head.
  __device__ __forceinline__ long long run(int at) const {
    const int pieces = p->pieces;
    const long long found = at < pieces ? static_cast<long long>(batch) * pieces + at
                                        : static_cast<long long>(p->batch) * at + batch;
    return found * p->value_heads + head;
  }
  __device__ __forceinline__ long long transition(int link) const {
    return run(element(link + 1)) * p->key_dim * p->key_dim;
  }
  __device__ __forceinline__ long long end(int link) const {
    return run(element(link + 1)) * p->value_dim * p->key_dim;
  }
  // The block's first row of the state of a piece, and how far apart its rows and columns are.
  __device__ __forceinline__ float* state(int piece) const {
    return static_cast<float*>(side->states) + run(piece) * p->value_dim * p->key_dim +
           row * row_stride();
  }
  __device__ __forceinline__ int row_stride() const {
    return Config::kStateVFirst ? p->key_dim : 1;
  }
  __device__ __forceinline__ int column_stride() const {
    return Config::kStateVFirst ? 1 : p->value_dim;
  }
  template <class Chain, class Rows>
  __device__ __forceinline__ void store(const Chain& chain, int link, const Rows& x) const {
    if (of_map) return;  // behind the last link alone
    const int piece = load_element(&steps[link + 1].piece);
    if (piece >= 0) chain.store(state(piece), row_stride(), column_stride(), x);
    if (walk.element >= 0 && link + 2 == walk.steps) {
      float* ends = static_cast<float*>(side->ends);
      chain.store(ends + run(walk.element) * p->value_dim * p->key_dim + row * p->key_dim,
                  p->key_dim, 1, x);
    }
  }
};

template <class Config, bool kReverse>
__device__ __forceinline__ void walk_pieces(const KdaPiecesParams& p, const KdaPiecesSide& side,
                                            unsigned block, unsigned shared) {
  constexpr int kRows = KdaChainSmem<Config>::kRows;
  KdaChain<Config, kReverse, KdaPieceLinks<Config>> chain(shared);
  KdaPieceLinks<Config>& links = chain.listed;
  const unsigned value_tiles = ceil_div(p.value_dim, kRows);
  const unsigned tiles = value_tiles + ceil_div(p.key_dim, kRows);
  const int tile = static_cast<int>(block % tiles);
  unsigned other = block / tiles;
  links.p = &p, links.side = &side;
  links.head = static_cast<int>(other % p.value_heads);
  other /= p.value_heads;
  links.batch = static_cast<int>(other % p.batch);
  const KdaPieceWalk* walks = static_cast<const KdaPieceWalk*>(side.walks) + other / p.batch;
  links.walk = {load_element(&walks->first_step), load_element(&walks->steps),
                load_element(&walks->element), load_element(&walks->map)};
  if (links.walk.steps == 0) return;
  links.steps = static_cast<const KdaPieceStep*>(side.steps) + links.walk.first_step;
  links.of_map = tile >= static_cast<int>(value_tiles);
  links.row = (links.of_map ? tile - static_cast<int>(value_tiles) : tile) * kRows;
  if (links.of_map && links.walk.map == 0) return;
  chain.links = links.walk.steps - 1;
  chain.key_dim = p.key_dim;
  chain.rows = minimum((links.of_map ? p.key_dim : p.value_dim) - links.row, kRows);
  chain.transitions = static_cast<const float*>(p.maps);
  const int first = links.element(0);
  if (links.of_map) {
    // Back, rows of M go in, which are the columns of M^T.
    chain.row_stride = kReverse ? 1 : p.key_dim;
    chain.column_stride = kReverse ? p.key_dim : 1;
    const long long size = static_cast<long long>(p.key_dim) * p.key_dim;
    const long long row_offset = links.row * chain.row_stride;
    float* maps = static_cast<float*>(p.maps);
    chain.begin = maps + links.run(first) * size + row_offset;
    chain.to = maps + links.run(links.walk.element) * size + row_offset;
  } else {
    const float* ends = static_cast<const float*>(side.ends) + links.row * p.key_dim;
    chain.ends = const_cast<float*>(ends);
    chain.begin =
        first < 0 ? links.state(-1 - first) : ends + links.run(first) * p.value_dim * p.key_dim;
    chain.row_stride = first < 0 ? links.row_stride() : p.key_dim;
    chain.column_stride = first < 0 ? links.column_stride() : 1;
  }
  chain.run();
}

template <class Config>
__device__ void kda_pieces(const KdaPiecesParams& p) {
  extern __shared__ __align__(1024) float4 shared[];
  if (static_cast<int>(blockIdx.x) < p.forward_blocks) {
    walk_pieces<Config, false>(p, p.forward, blockIdx.x, shared_address(shared));
    return;
  }
  walk_pieces<Config, true>(p, p.back, blockIdx.x - p.forward_blocks, shared_address(shared));
}

}  // namespace lathe
