// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the step that summarises segments of chunked KDA, and its implementations: what a
// segment makes of the state before it, and of the gradient behind it.
#pragma once

#include "ops/kda/walk.h"
#include "ops/kernel.h"
#include "ops/step.h"
#include "templates/params/kda_chunked.h"

namespace lathe {

// Says which results of the summaries a call needs, and which states it gives. Without `states` the
// forward direction makes transitions alone: a backward that has the forward's saved states only
// walks back.
struct KdaSummaryParts {
  bool states = false;         // where each segment starts
  bool grads = false;          // the gradients where each ends
  bool initial_state = false;  // meaningful with states
  bool dht = false;            // meaningful with grads
};

struct KdaSummaryProblem {
  KdaProblem kda;
  KdaSummaryParts parts;
  KdaWalkTile tile;  // of the portable walks beside it
  // A measurement has chosen the portable forward: its answer is about the summaries too.
  bool chosen_portable = false;
};

// Holds what grids of the summary and of the merge depend on.
struct KdaSegmentNumbers {
  KdaSegmentNumbers() = default;
  KdaSegmentNumbers(const KernelSpec& spec)
      : states(spec.constant("states", 0)),
        grads(spec.constant("grads", 0)),
        ranks(spec.constant("ranks", 0)),
        rows(spec.constant("rows", 1)) {}
  int64_t states = 0, grads = 0, ranks = 0;  // flags
  int64_t rows = 1;                          // that a block of the merge takes at most
};

// Launches one kernel. Its blocks of threads walk over the tokens of a segment, each with some
// columns of V, or of K for the transitions.
class KdaSummary {
 public:
  // Counts what one block of threads does that walks forward, or back.
  struct Work {
    int64_t row_bytes;   // that it reads for a token, beside v or do
    int64_t tensor_ops;  // for 16 tokens
  };

  explicit KdaSummary(KernelSpec spec) : kernel(std::move(spec)) {}
  virtual ~KdaSummary() = default;

  virtual int64_t columns() const = 0;
  virtual Work work(const KdaProblem& problem, bool back) const = 0;
  virtual Status launch(const KdaSummaryParams& p, int64_t blocks, CUstream_st* stream) const = 0;

  const KdaSegmentNumbers& numbers() const { return kernel.numbers(); }

  NumberedSlot<KdaSegmentNumbers> kernel;
  // The times of a link of the chain and of the two launches before a walk, in the time that a walk
  // of the same family takes for a token.
  int64_t link_tokens = 16, launch_tokens = 64;
};

using KdaSummaryStep = Implementation<KdaSummaryProblem, KdaSummary>;
LATHE_STEP(KdaSummaryStep, kda_summaries, kKdaSummarySm90, kKdaSummaryPortable)

// Returns the portable kernel.
KernelSpec kda_summary_spec(const KdaSummaryProblem& problem);

}  // namespace lathe
