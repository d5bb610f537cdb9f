// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes chunked KDA on the host: tiles, specs, grids, workspace and cost of its launches. Pure
// functions of integers.
//
// The forward is one walk over the tokens. The backward walks back. It also walks forward once more
// unless the forward has saved the values and states. Then chunks of 64 tokens are computed
// independently, and the gradients of A_log and dt_bias are summed over them.
#pragma once

#include <memory>
#include <vector>

#include "ops/kda/back/step.h"
#include "ops/kda/forward/step.h"
#include "ops/kda/gradients/step.h"
#include "ops/kda/kernels.h"
#include "ops/kda/segments.h"
#include "ops/kda/summary/step.h"

namespace lathe {

struct KdaChunkedKernels {
  KdaWalkTile tile;                       // of the portable walks
  std::unique_ptr<KdaSummary> summary;    // before the walks of both directions
  KernelSlot compose;                     // kda_compose
  NumberedSlot<KdaSegmentNumbers> merge;  // kda_merge
  std::unique_ptr<KdaForward> forward;
  std::unique_ptr<KdaForward> cluster;  // of segments, with what comes before their walks
  std::unique_ptr<KdaForward> states;   // of a backward that walks forward in a launch of its own
  std::unique_ptr<KdaBack> scan;
  std::unique_ptr<KdaGradients> backward;
  KernelSlot finish;  // kda_backward_finish

  // Returns the kernels in the order of a plan; slots may be empty.
  std::vector<KernelSlot*> slots();
};
// Returns the summaries beside such walks, for a call that wants these parts of them.
Result<std::unique_ptr<KdaSummary>> kda_summary_of(const KdaChunkedKernels& kernels,
                                                   const KdaProblem& problem,
                                                   const KdaSummaryParts& parts,
                                                   const DeviceFacts& facts);
Result<KdaChunkedKernels> kda_chunked_kernels(const KdaProblem& problem, const DeviceFacts& facts);
KernelSpec kda_backward_finish_spec();

// Returns how many blocks of a walk the device holds at once.
int64_t kda_blocks_at_once(const KernelSpec& walk, const DeviceFacts& facts);

// Holds the geometry. `tokens` is T: of each row of the batch, or of all packed sequences.
struct KdaChunkedShape {
  int64_t sequences = 0, heads = 0, value_heads = 0;
  int64_t tokens = 0;
  int64_t segments = 1;     // of a sequence
  int64_t checkpoints = 0;  // of all sequences, with a pool
  bool clustered = false;   // the segments are walked by a cluster, in one launch
};
int64_t kda_rows(const KdaProblem& problem, const KdaChunkedShape& shape);   // tokens of all
int64_t kda_slots(const KdaProblem& problem, const KdaChunkedShape& shape);  // params/kda_chunked.h
int64_t kda_slots(bool packed, int64_t sequences, int64_t tokens);
// Returns the most chunks of `size` tokens that chunk_states has; packed lengths are on the device.
int64_t kda_chunks(const KdaProblem& problem, const KdaChunkedShape& shape, int64_t size);
// Returns how many blocks of so many columns share the values of a head.
int64_t kda_value_tiles(const KdaProblem& problem, int64_t columns);
// Returns into how many segments a call cuts its sequences. `asked` is the option; 0 leaves the
// choice to the shape. A problem that is neither segmented nor warmed up has one segment.
int64_t kda_segments(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                     const DeviceFacts& facts, const KdaChunkedShape& shape, int asked);

// Holds the blocks of each launch of one call, all in x; 0: the launch is skipped. A launch may
// have at most 2^31 - 1 blocks, which the caller checks. No number here wraps around.
struct KdaLaunch {
  int64_t summary_forward = 0, summary_back = 0;  // of one launch
  int64_t merge = 0, merge_rows = 0;              // blocks, and rows of each
  int64_t forward = 0;
  int64_t cluster = 1;  // blocks of a cluster of the forward: the segments of a sequence
  int64_t states = 0;
  int64_t scan_forward = 0, scan_back = 0;  // of one launch
  int64_t backward = 0;
  int64_t finish = 0;
  // Chunks that a block of the backward goes through, from one state that it reads on; and from one
  // state that the walk forward keeps to the next.
  int64_t run = 1, kept_run = 1;

  int64_t summary() const { return summary_forward + summary_back; }
  int64_t scan() const { return scan_forward + scan_back; }
  int64_t count() const;  // launches
};
KdaLaunch kda_launch(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                     const KdaChunkedShape& shape);

// Holds the offsets of the workspace's sections. A section that a call does not use has no bytes.
// `saved_outside`: the caller's tensors hold the forward's saved values and states.
struct KdaWorkspace {
  int64_t before = 0;        // float32 [N, HV, V, K]: read from a pool
  int64_t summaries = 0;     // float32 [N, segments, HV, V, K]
  int64_t transitions = 0;   // float32 [N, segments, HV, K, K]
  int64_t grad_ends = 0;     // float32 [N, segments, HV, V, K]
  int64_t saved_values = 0;  // [rows, HV, V] of the inputs' type
  int64_t saved_states = 0;  // [slots, HV, V, K]
  int64_t value_grads = 0;   // as saved_values
  int64_t state_grads = 0;   // as saved_states
  int64_t rate_sums = 0;     // float32 [slots, HV]
  int64_t bias_sums = 0;     // float32 [slots, HV, K]
  int64_t total = 0;
};
// Returns INVALID_ARGUMENT if the sum passes 2^63.
Result<KdaWorkspace> kda_workspace(const KdaProblem& problem, const KdaChunkedShape& shape,
                                   bool saved_outside);

// The minimum counts every tensor once. Bytes count what the launches read from memory and write;
// data that L2 holds counts once. Tensor operations count the work of the matrix instructions.
Cost kda_chunked_cost(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                      const KdaChunkedShape& shape, int64_t chunk_size);

}  // namespace lathe
