// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes flash_attention_decode on the host: which kernels a problem needs, into how many splits
// a call cuts its keys, how large the grids are and how many bytes move. Pure functions of
// integers.
#pragma once

#include "ops/attention/kernels.h"

namespace lathe {

// A call launches the kernel with the fewest rows that hold all queries of a key head.
struct AttentionDecodeKernels {
  // By rows of a tile, ascending. Empty if every call takes the kernel by warpgroups.
  std::vector<KernelSlot> decode;
  KernelSlot warpgroups;  // sm90/decode.h
  KernelSlot append, combine;
};
// Holds what the problem declares: queries of a sequence, query heads of a key head, keys of a
// page; -1: not known. If the number of queries varies from call to call there are two kernels, one
// for a single query and one for many.
struct AttentionDecodeRows {
  int64_t queries = -1, ratio = -1, page = -1;
};
Result<AttentionDecodeKernels> attention_decode_kernels(const AttentionProblem& problem,
                                                        const DeviceFacts& facts,
                                                        const AttentionDecodeRows& rows);
KernelSpec attention_decode_spec(const AttentionProblem& problem, const AttentionTile& tile);

// Returns tiles of `rows` rows that fit the device, the default first. If four warps own more rows
// than that, warps share the keys of a block. Stages are chosen so that two blocks share a
// multiprocessor if its memory allows.
std::vector<AttentionTile> attention_decode_candidates(const AttentionProblem& problem,
                                                       const DeviceFacts& facts, int rows);
int attention_decode_smem(const AttentionProblem& problem, const AttentionTile& tile);

// The same of a problem whose values are columns of its keys. The tiles have fewer rows where the
// device's shared memory is too small for `rows`.
std::vector<AttentionTile> attention_latent_candidates(const AttentionProblem& problem,
                                                       const DeviceFacts& facts, int rows);
int attention_latent_smem(const AttentionProblem& problem, const AttentionTile& tile);
KernelSpec attention_latent_spec(const AttentionProblem& problem, const AttentionTile& tile);

struct AttentionDecodeShape {
  int64_t batch = 0, queries = 0, heads = 0, kv_heads = 0;
  int64_t pages = 0, page = 0, table_width = 0;  // P, page and M

  int64_t ratio() const { return kv_heads > 0 ? heads / kv_heads : 0; }
  int64_t rows() const { return batch * heads * queries; }
  int64_t most_keys() const { return page * table_width; }  // of a sequence
};

// Returns the kernel for a call.
const KernelSlot& attention_decode_pick(const AttentionDecodeKernels& kernels,
                                        const AttentionDecodeShape& shape);
// Holds the number of splits for every launch, because attention_num_splits is a search that takes
// too long for a launch.
class AttentionSplitTable {
 public:
  AttentionSplitTable() = default;
  explicit AttentionSplitTable(int multiprocessors);
  int64_t splits(const SplitProblem& tuning_key) const;  // of the device it was made for
  int64_t multiprocessors() const { return multiprocessors_; }

 private:
  int64_t multiprocessors_ = 0, rows_ = 0, columns_ = 0;
  std::vector<uint8_t> table_;  // [tiles - 1][most splits - 1]
};
// If `wanted` is 0 the function chooses. The result depends on capacities, never on lengths.
int64_t attention_decode_splits(const AttentionProblem& problem, const KernelNumbers& kernel,
                                const AttentionDecodeShape& shape,
                                const AttentionSplitTable& chosen, int64_t wanted);
// The workspace holds the partial results of the splits: first every o, then every lse.
int64_t attention_decode_partial_out_bytes(const AttentionProblem& problem,
                                           const AttentionDecodeShape& shape, int64_t splits);
uint64_t attention_decode_workspace_bytes(const AttentionProblem& problem,
                                          const AttentionDecodeShape& shape, int64_t splits);
int64_t attention_decode_tiles(const KernelNumbers& kernel, const AttentionDecodeShape& shape);
// All blocks are in x. A launch may have at most 2^31 - 1 blocks: the caller compares these first.
int64_t attention_decode_blocks(const KernelNumbers& kernel, const AttentionDecodeShape& shape,
                                int64_t splits);
int64_t attention_append_blocks(const AttentionDecodeShape& shape);
int64_t attention_combine_blocks(const KernelSpec& spec, const AttentionDecodeShape& shape);

// n / divisor = (high word of n * magic + n) >> shift for every 0 <= n < 2^31. 1 <= divisor.
struct FastDivision {
  uint32_t magic = 0;
  int shift = 0;
};
FastDivision fast_division(int64_t divisor);

// Takes every sequence to be as long as its table allows, because lengths are on the device.
AttentionCost attention_decode_cost(const AttentionProblem& problem, const KernelSpec& spec,
                                    const AttentionDecodeShape& shape, const AttentionMask& mask,
                                    int64_t splits);

}  // namespace lathe
