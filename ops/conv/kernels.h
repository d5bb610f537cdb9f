// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the causal_conv1d family on the host: which kernels a problem needs, with which tiles,
// how large their grids are and how many bytes they move. Pure functions of integers.
#pragma once

#include "codegen/base/integers.h"
#include "codegen/launch_shape.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"
#include "ops/tiles.h"
#include "templates/params/conv.h"

namespace lathe {

// Tile constants are part of the spec. They never depend on T, B or N.
struct ConvTile {
  int tokens = 64;  // tokens one thread walks
  int warps = 4;    // threads = 32 * warps
  // The template decides how the threads of a block cover (channels, tokens).
};

// Returns all configurations worth trying, the default first. The tuner and choose() share this
// list.
std::vector<ConvTile> conv_candidates(const ConvProblem& problem, const DeviceFacts& facts);
// Returns UNSUPPORTED if the device's shared memory is too small for any tile.
Result<ConvTile> conv_choose(const ConvProblem& problem, const DeviceFacts& facts);

// Holds the geometry of a call. `tokens` = end - begin of this rank.
struct ConvShape {
  int64_t batch = 0, tokens = 0, channels = 0, sequences = 0;
  int64_t multiprocessors = 1;
  int64_t checkpoints = 0;  // states that a pool keeps beside those behind sequences
};

// causal_conv1d_lines moves and adds up lines of channels between pieces of several ranks.
KernelSpec conv_lines_spec(Dtype x);

// Holds the constants of a walk that its grid depends on.
struct ConvWalk {
  ConvWalk() = default;
  ConvWalk(const KernelSpec& spec);
  int64_t tokens = 0;               // that a warp has at most
  int64_t channels = 0, warps = 0;  // of a block of threads; 0: no kernel
  int64_t blocks = 0;               // on each multiprocessor, with which runs are long enough
  int64_t states = 0, halos = 0;    // warps for the states of a sequence, and of a row of the batch
  bool by_pieces = false;           // a tile is a sequence
};
struct ConvHaloNumbers {
  ConvHaloNumbers() = default;
  ConvHaloNumbers(const KernelSpec& spec);
  int64_t channels = 0;  // of a block
};

struct ConvKernels {
  NumberedSlot<ConvWalk> forward, backward;
  KernelSlot weight_grad;  // partials -> weight's dtype, or float32 when ranks add; not of pieces
  KernelSlot weight_grad_cast;  // after the all-reduce: one partial -> weight's dtype
  NumberedSlot<ConvHaloNumbers> halo_pack, halo_join, halo_add;
};
// `reduce_over_ranks`: dweight and dbias are all-reduced in float32 between the two passes.
Result<ConvKernels> conv_kernels(const ConvProblem& problem, const DeviceFacts& facts,
                                 bool reduce_over_ranks);

// Returns the bytes of shared memory that a block has by default.
int conv_shared_limit(const DeviceFacts& facts);
// Returns why a kernel whose blocks have at least `bytes` of them cannot run; empty: it can.
std::string conv_shared_refusal(const char* kernel, int bytes, const DeviceFacts& facts);
// Returns the float32 between rows of shared memory that a warp reads without conflicts: that of
// templates/common/copy.cuh.
int conv_tap_pitch(int rows, int channels);
// Returns the bytes of the filter and the bias of a warp's channels in shared memory.
int conv_filter_bytes(const ConvProblem& problem, int vector);
int64_t conv_vector(const KernelSpec& spec);  // elements of one access

// Says how a call lies over warps and blocks. Small calls have short runs, so that all
// multiprocessors have work.
struct ConvTiling {
  int run = 0;          // tokens of a warp
  int tiles = 0;        // token tiles of one batch row
  int columns = 0;      // channel tiles
  int state_tiles = 0;  // blocks for states
};
// Inline, as launches ask.
inline ConvTiling conv_tiling(const ConvWalk& walk, const ConvShape& shape) {
  constexpr int64_t kPieceTokens = 64;  // collective/plans/pieces.h
  constexpr int64_t kLeast = 16;        // tokens: with fewer the rows before a run weigh too much
  const int64_t columns = ceil_div(shape.channels, walk.channels);
  const int64_t work = columns * shape.batch * shape.tokens;
  const int64_t wanted = walk.blocks * shape.multiprocessors;
  int64_t run = walk.tokens, block = run * walk.warps;
  if (walk.by_pieces) run = kPieceTokens / walk.warps;
  while (!walk.by_pieces && work < wanted * block && run > kLeast) run /= 2, block /= 2;
  const int64_t enough = wanted * block;
  if (walk.by_pieces) {
    // Runs are what the sums of a sequence depend on.
  } else if (walk.blocks > 1) {
    // Of two rounds that are wanted the second would be nearly empty: one of half as many blocks.
    if (2 * work > enough && 4 * work < 3 * enough) run *= 2, block *= 2;
  } else if (5 * work > 12 * enough && 5 * work < 24 * enough) {
    // All blocks of one round begin and end together: shorter ones, for a round and a half.
    run = run / 8 * 5, block = run * walk.warps;
  }
  const int64_t tiles = walk.by_pieces ? shape.sequences : ceil_div(shape.tokens, block);
  ConvTiling out{static_cast<int>(run), static_cast<int>(tiles), static_cast<int>(columns), 0};
  const int64_t states =
      walk.states * (shape.sequences + shape.checkpoints) + walk.halos * shape.batch;
  if (states > 0 && columns > 0) out.state_tiles = static_cast<int>(ceil_div(states, walk.warps));
  return out;
}

// Returns the grid of a launch over `tiles` token tiles and `state_tiles` state tiles (either may
// be 0, not both).
Grid conv_grid(const ConvTiling& tiling, int64_t batch, int64_t tiles, int64_t state_tiles);
Grid conv_weight_grad_grid(const ConvShape& shape);
Grid conv_halo_grid(const ConvHaloNumbers& kernel, const ConvShape& shape);

// Returns the bytes of the whole filter and bias in memory.
uint64_t conv_filter_cost(const ConvProblem& problem, const ConvShape& shape);
// Counts the bytes that the kernels must move and the operations of the definition.
Cost conv_cost(const ConvProblem& problem, const ConvKernels& kernels, const ConvShape& shape);

}  // namespace lathe
