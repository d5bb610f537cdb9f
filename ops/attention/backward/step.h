// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the backward step of flash attention and its implementations: grids, workspace, cost and
// launches. `prepare` computes two numbers of each row, a main kernel the gradients, and `finish`
// rounds and adds up what several blocks have left.
//
// A block of the main kernel owns keys and walks over the queries that see them, so dk and dv have
// one writer and are the same bit for bit in every run. Many blocks add to dq, in an order that the
// implementation has, or in none.
#pragma once

#include <memory>

#include "ops/attention/params.h"
#include "ops/step.h"
#include "templates/params/attention_backward.h"

namespace lathe {

// Two main kernels of one family and tile compute dq, dk and dv. In `together` a block adds up the
// query heads of its key head. `apart` has a block for each query head and float32 partial sums of
// dk and dv, for few keys and heads. This says which of the two a plan may need.
struct AttentionHeadChoice {
  bool together = true, apart = false;
};
struct AttentionBackwardProblem : AttentionProblem {
  AttentionHeadChoice heads;

  // Says which blocks the kernel has whose tile is chosen; the other has the same.
  bool main_apart() const { return heads.apart && !heads.together; }
};

// Describes where the blocks of an implementation add up dq.
struct AttentionSums {
  int64_t accumulators = 0;
  int64_t rows = 0, width = 0;   // of an accumulator: rows of each head, and their columns
  int64_t tiles = 0;             // of a head, where it lies in tiles
  int64_t turns = 0;             // words that order the blocks, zeroed in the place of the sums
  int64_t section = 0;           // heads whose blocks run at a time
  int64_t multiplied_width = 0;  // columns that products have, whole panels
  int64_t finish_blocks = 0;
};

// Holds the grids of one call.
struct AttentionBackwardLaunch {
  bool apart = false;
  int64_t rows = 0, keys = 0;  // of all sequences
  int64_t prepare_tiles = 0;   // row blocks of one head
  int64_t slices = 0;          // blocks of one head of a sequence
  AttentionSums dq;
  int64_t prepare_blocks = 0, main_blocks = 0;
  int64_t dk_blocks = 0, dv_blocks = 0, dsinks_blocks = 0;  // of finish, beside those of dq

  int64_t finish_blocks() const { return dq.finish_blocks + dk_blocks + dv_blocks + dsinks_blocks; }
};

// Holds the offsets of the workspace's sections, each a multiple of 256 bytes. A section that a
// call does not use has no bytes.
struct AttentionBackwardWorkspace {
  int64_t lse2 = 0;          // float32 [H, rows]
  int64_t delta = 0;         // float32 [H, rows]
  int64_t dq_sums = 0;       // float32 [accumulators, rows of dq, H, width], or in tiles
  int64_t dq_order = 0;      // int64 [turns]
  int64_t dk_parts = 0;      // float32 [keys, H, D]
  int64_t dv_parts = 0;      // float32 [keys, H, DV]
  int64_t dsinks_parts = 0;  // float32 [prepare_tiles, H]
  int64_t total = 0;
};
template <>
inline constexpr int kOtherOffsets<AttentionBackwardWorkspace> = 2;  // dq_order, total
// Returns INVALID_ARGUMENT if the sum passes 2^63.
Result<AttentionBackwardWorkspace> attention_backward_workspace(
    const AttentionProblem& problem, const AttentionShape& shape,
    const AttentionBackwardLaunch& launch);

struct AttentionBackwardCall {
  const AttentionRequest& request;
  const AttentionShape& shape;
  const AttentionBackwardLaunch& launch;
  const AttentionBackwardWorkspace& workspace;
  const AttentionLists& lists;
  const Call& call;
};

// Launches the backward with the main kernels of one implementation, or without any if only dsinks
// is asked for.
class AttentionBackward {
 public:
  // An empty `main` stands for no main kernel.
  AttentionBackward(KernelSlot main, const AttentionBackwardProblem& problem,
                    const DeviceFacts& facts);
  virtual ~AttentionBackward() = default;

  // Returns the kernels in the order of a plan; slots may be empty.
  std::vector<KernelSlot*> slots() { return {&mask_queries, &prepare, &together, &apart, &finish}; }
  const AttentionTiling& tiling() const { return main().numbers(); }
  const AttentionSlot& main() const { return together ? together : apart; }

  // `shape.sequences` is at least 1 for packed input: rows of no sequence are still written.
  AttentionBackwardLaunch plan(const AttentionShape& shape, const AttentionGradients& wanted) const;
  // Says whether blocks of whole key heads are too few for the device, so that each query head gets
  // its own block.
  bool heads_apart(const AttentionShape& shape) const;
  Status launch(const AttentionBackwardCall& of) const;

  NumberedSlot<AttentionTiling> prepare;
  AttentionSlot together, apart;
  KernelSlot mask_queries;  // before them, with a mask_mod
  KernelSlot finish;

 protected:
  // Returns the blocks of one head of a sequence.
  virtual int64_t slices(const AttentionShape& shape) const;
  // Returns the multiprocessors that blocks of key heads are to fill, and the sequences that count.
  virtual int64_t multiprocessors_to_fill() const { return facts_.multiprocessors; }
  virtual int64_t parts_to_fill(const AttentionShape& shape) const;
  // Returns where dq is added up. `launch` has its slices, rows and keys. Without dq there are no
  // accumulators and no blocks.
  virtual AttentionSums sums_of_dq(const AttentionShape& shape, const AttentionGradients& wanted,
                                   const AttentionBackwardLaunch& launch) const = 0;
  virtual Status launch_main(const AttentionBackwardCall& of,
                             const AttentionSlot& kernel) const = 0;
  virtual Status launch_finish(const AttentionBackwardCall& of) const = 0;

  // Fill cleared parameters with what implementations share.
  void fill_main(const AttentionBackwardCall& of, AttentionBackwardParams* p) const;
  void fill_finish(const AttentionBackwardCall& of, AttentionBackwardFinishParams* p) const;
  // Returns the blocks of finish for rows whose threads have 8 columns each.
  int64_t finish_blocks_of(int64_t rows, int64_t heads, int64_t width) const;

  const AttentionProblem problem_;
  const DeviceFacts facts_;

 private:
  Status launch_prepare(const AttentionBackwardCall& of) const;
};

using AttentionBackwardStep = Implementation<AttentionBackwardProblem, AttentionBackward>;
LATHE_STEP(AttentionBackwardStep, attention_backwards, kAttentionBackwardSm90,
           kAttentionBackwardPortable)

// Returns the launcher for a problem that has gradients. UNSUPPORTED, by name, where no
// implementation covers them.
Result<std::unique_ptr<AttentionBackward>> make_attention_backward(
    const AttentionBackwardProblem& problem, const DeviceFacts& facts);
// Returns `prepare` and `finish` alone.
std::unique_ptr<AttentionBackward> make_attention_backward_ends(const AttentionProblem& problem,
                                                                const DeviceFacts& facts);

// Counts five products per kept pair, and the bytes that the three launches read and write.
AttentionCost attention_backward_cost(const AttentionProblem& problem,
                                      const AttentionBackward& backward,
                                      const AttentionShape& shape,
                                      const AttentionBackwardLaunch& launch,
                                      const std::vector<AttentionSequences>& sequences);
// Returns the bytes that a backward reads and writes in memory behind L2. Its blocks walk the rows
// of q, dout and the sums of dq. `cost` is the result of attention_backward_cost.
uint64_t attention_backward_memory_bytes(const AttentionProblem& problem,
                                         const AttentionBackward& backward,
                                         const AttentionShape& shape,
                                         const AttentionBackwardLaunch& launch,
                                         const std::vector<AttentionSequences>& sequences,
                                         const AttentionCost& cost, const DeviceFacts& facts);

}  // namespace lathe
