// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cuts sequences of chunked KDA into segments, on the host. The functions choose the number of
// segments, and give the specs, grids, buffers and cost of kda_summary, kda_merge and kda_compose,
// which run before the walks. Pure functions of integers.
#pragma once

#include "codegen/base/integers.h"
#include "ops/kda/forward/step.h"
#include "ops/kda/summary/step.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"

namespace lathe {

constexpr int kKdaMostSegments = 32;
// Segments must take at most this share of the time of one segment.
constexpr double kKdaWorthwhile = 0.9;

KernelSpec kda_merge_spec(const KdaProblem& problem, const KdaSummaryParts& parts, bool rounded);
KernelSpec kda_compose_spec(const KdaProblem& problem);
// kda_pieces takes states through pieces on any ranks; a walk has a block for each tile of rows.
KernelSpec kda_pieces_spec(const KdaProblem& problem);
int64_t kda_piece_tiles(int64_t key_dim, int64_t value_dim);
int kda_chain_smem(int padded_keys);  // of kda_compose and kda_pieces

struct KdaSegmentShape {
  int64_t sequences = 0, value_heads = 0;
  int64_t segments = 1;
  int key_dim = 128, value_dim = 128;

  int64_t runs() const { return bounded_product({sequences, value_heads, segments}); }
};

// Holds the blocks of a launch, all in x; 0: the launch is skipped. One segment needs neither
// summary nor chain, unless it passes a state to another rank. Two segments need no chain, because
// the end of the first is the start of the second, unless the first starts from another rank's
// state.
struct KdaSummaryBlocks {
  int64_t forward = 0, back = 0;  // of one launch

  int64_t all() const { return forward + back; }
};
// `ranks`: sequences may begin and go on on other ranks, so any block may be wanted.
KdaSummaryBlocks kda_summary_blocks(const KdaSummary& summary, const KdaSegmentShape& shape,
                                    bool ranks);
int64_t kda_merge_blocks(const KdaSegmentNumbers& merge, const KdaSegmentShape& shape);
// Returns the rows that a block of the chain takes, of either kind.
int64_t kda_merge_rows(const KdaSegmentNumbers& merge, const KdaSegmentShape& shape);
// Returns the blocks of the summary for one sequence, of either kind. A launch skips sequences by
// this number.
KdaSummaryBlocks kda_summary_each(const KdaSummary& summary, const KdaSegmentShape& shape);
// Returns the blocks of one tree level, which reduces every `radix` elements to one.
int64_t kda_compose_blocks(const KdaSegmentShape& shape, int elements, int step, int radix);
// A level reduces this many elements to one: log W launches for many ranks, one launch up to five
// ranks.
constexpr int kKdaComposeRadix = 4;

// Return the float32 numbers in the arrays that KdaSummaryParams points to; none with one segment.
int64_t kda_end_numbers(const KdaSegmentShape& shape);  // summaries, and grad_ends
int64_t kda_transition_numbers(const KdaSegmentShape& shape);

// Returns the cost of both launches. `rows` counts the tokens of all sequences. No byte here counts
// in the minimum.
Cost kda_segments_cost(const KdaProblem& problem, const KdaSummary& summary,
                       const KdaSegmentNumbers& merge, const KdaSegmentShape& shape, int64_t rows);

// Describes a rank's extra work for the sequences that the ends of its part cut, of one segment
// each: it walks `forth` and `back` tokens, with transitions if `maps`, and composes `links` maps.
struct KdaPartWalks {
  int64_t forth = 0, back = 0;
  bool states = false, maps = false;
  int64_t links = 0;
};
Cost kda_part_cost(const KdaProblem& problem, const KdaSummary& summary,
                   const KdaSegmentShape& shape, const KdaPartWalks& walks);

// Describes a call for the choice of its number of segments. The choice depends on the shape and
// the device, never on data, so the bits of a result do not depend on the lengths on the device.
struct KdaSegmentProblem {
  int64_t heads = 0;                       // value heads of all sequences
  int64_t value_tiles = 1, key_tiles = 1;  // blocks of threads for the columns of V, and of M
  int64_t tokens = 0;                      // of a sequence; of packed ones on average
  int64_t blocks_at_once = 0;              // on the device
  bool forward = false, back = false;      // which walks a call goes
  // The times of a link of the chain and of the two launches, in the time a walk takes for a token
  // (about 0.1 us).
  int64_t link_tokens = 16, launch_tokens = 64;
  bool ranks = false;  // summaries are made of every segment, also of one
  bool apart = false;  // the walks are launches one after another, not one
};
int kda_choose_segments(const KdaSegmentProblem& question);

// The same for a launch that walks the segments of a head by a cluster: `heads` of all sequences.
struct KdaClusterProblem {
  int64_t heads = 0, tokens = 0;
  int64_t multiprocessors = 0;
};
int kda_cluster_segments(const KdaClusterProblem& question);
// Returns what such a launch costs beside the walk that gives outputs.
Cost kda_cluster_cost(const KdaProblem& problem, const KdaForward& cluster,
                      const KdaSegmentShape& shape, int64_t rows);

}  // namespace lathe
