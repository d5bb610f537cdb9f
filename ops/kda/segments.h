// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Sequences of chunked KDA in segments on the host: how many, the specs and grids of kda_summary,
// kda_merge and kda_compose, which go before the walks, and what they hold and move. Pure functions
// of integers.
#pragma once

#include <cstdint>

#include "codegen/launch_shape.h"
#include "codegen/spec.h"
#include "ops/kernel_problems.h"

namespace lathe {

constexpr int kKdaMostSegments = 32;

// What a call wants of the summaries, and what it gives. Without `states` the transitions alone are
// made: a backward that was left the forward's states walks nothing but back.
struct KdaSummaryParts {
  bool states = false;         // where each segment starts
  bool grads = false;          // the gradients where each ends
  bool initial_state = false;  // meaningful with states
  bool dht = false;            // meaningful with grads
};

// `walk` is kda_forward or kda_backward_scan: tile, types and options are its own.
KernelSpec kda_summary_spec(const KernelSpec& walk, const KdaSummaryParts& parts);
KernelSpec kda_merge_spec(const KernelSpec& walk, const KdaSummaryParts& parts);
KernelSpec kda_compose_spec(const KernelSpec& walk);
int kda_merge_smem(int padded_keys);

// kda_forward with segments that start early from zero, in its own launch and nothing before it.
// `forward` is its spec; its grid is the forward's.
KernelSpec kda_forward_warmup_spec(const KernelSpec& forward);

struct KdaSegmentShape {
  int64_t sequences = 0, value_heads = 0;
  int64_t segments = 1;
  int key_dim = 128, value_dim = 128;

  int64_t runs() const { return sequences * value_heads * segments; }
};

// Blocks of a launch, all in x; 0: there is nothing for it to do. One segment needs neither, unless
// it hands something on to another rank; two need no chain, the first one's end being the second
// one's start, unless the first one starts from another rank's state.
struct KdaSummaryBlocks {
  int64_t forward = 0, back = 0;  // of one launch

  int64_t all() const { return forward + back; }
};
KdaSummaryBlocks kda_summary_blocks(const KernelSpec& summary, const KdaSegmentShape& shape);
int64_t kda_merge_blocks(const KernelSpec& merge, const KdaSegmentShape& shape);
// Blocks of the summary for one sequence, of either kind: what a launch skips.
KdaSummaryBlocks kda_summary_each(const KernelSpec& summary, const KdaSegmentShape& shape);
// Of a level of a tree that makes one of every `radix` elements.
int64_t kda_compose_blocks(const KdaSegmentShape& shape, int elements, int step, int radix);
// Elements that become one in a level: as log W has it for many ranks, one launch up to five.
constexpr int kKdaComposeRadix = 4;

// float32 numbers of what KdaSummaryParams points to; none with one segment.
int64_t kda_end_numbers(const KdaSegmentShape& shape);  // summaries, and grad_ends
int64_t kda_transition_numbers(const KdaSegmentShape& shape);

// Both launches; `rows`: tokens of all sequences. Nothing here is of the least that has to move.
Cost kda_segments_cost(const KdaProblem& problem, const KernelSpec& summary,
                       const KernelSpec& merge, const KdaSegmentShape& shape, int64_t rows);

// What a rank does more for the sequences that its part's ends cut, of one segment each: `forth`
// and `back` tokens walked, with transitions if `maps`, and `links` maps composed.
struct KdaPartWalks {
  int64_t forth = 0, back = 0;
  bool states = false, maps = false;
  int64_t links = 0;
};
Cost kda_part_cost(const KdaProblem& problem, const KernelSpec& summary,
                   const KdaSegmentShape& shape, const KdaPartWalks& walks);

// How many segments a call is cut into where nobody says: from its shape and the device, never from
// data, so that its bits do not depend on what the lengths on the device are.
struct KdaSegmentProblem {
  int64_t heads = 0;                       // value heads of all sequences
  int64_t value_tiles = 1, key_tiles = 1;  // blocks of threads for the columns of V, and of M
  int64_t tokens = 0;                      // of a sequence; of packed ones on average
  int64_t blocks_at_once = 0;              // on the device
  bool forward = false, back = false;      // which walks the launch goes
  bool ranks = false;                      // summaries are made of every segment, also of one
};
int kda_choose_segments(const KdaSegmentProblem& question);

}  // namespace lathe
