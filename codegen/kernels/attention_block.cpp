// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/kernels/attention_block.h"

#include <algorithm>
#include <cstddef>

#include "templates/params/attention.h"

namespace lathe {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Constants that both kinds of a block step fix.
AttentionProblem block_problem(AttentionProblem problem) {
  problem.packed = problem.sinks = problem.pack_gqa = false;
  // Rows of other pairs are masked by the code that masks by window.
  problem.local = problem.local || problem.pairs;
  return problem;
}

}  // namespace

KernelSpec attention_block_spec(const AttentionProblem& problem, const AttentionTile& tile) {
  KernelSpec spec = attention_forward_spec(block_problem(problem), tile);
  spec.kernel = "attention_block";
  spec.source = "attention/attention_block.cuh";
  spec.params = "AttentionBlockParams";
  spec.params_bytes = sizeof(AttentionBlockParams);
  spec.last_field = "first";
  spec.last_field_offset = offsetof(AttentionBlockParams, first);
  spec.smem = "AttentionBlockSmem";
  spec.constants.push_back(Constant::flag("pairs", "kPairs", problem.pairs));
  return spec;
}

KernelSpec attention_positions_spec() {
  KernelSpec spec;
  spec.kernel = "attention_positions";
  spec.source = "attention/attention_positions.cuh";
  spec.params = "AttentionPositionsParams";
  spec.params_bytes = sizeof(AttentionPositionsParams);
  spec.last_field = "run";
  spec.last_field_offset = offsetof(AttentionPositionsParams, run);
  spec.threads = 128;
  return spec;
}

Result<AttentionBlockKernels> attention_block_kernels(const AttentionProblem& problem,
                                                      const DeviceFacts& facts) {
  AttentionBlockKernels kernels;
  // The forward's checks of types and widths.
  LATHE_ASSIGN(const AttentionKernels checked, attention_kernels(block_problem(problem), facts));
  if (problem.forward && checked.forward) {
    LATHE_ASSIGN(const AttentionTile tile, attention_choose(block_problem(problem), facts));
    kernels.forward = attention_block_spec(problem, tile);
  }
  if (problem.positions) kernels.positions = attention_positions_spec();
  return kernels;
}

std::vector<AttentionVisit> attention_pair_visits(const std::vector<AttentionPair>& pairs,
                                                  int64_t window_left, int64_t window_right,
                                                  int64_t row_begin, int64_t row_end,
                                                  int64_t block) {
  std::vector<AttentionVisit> visits;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const AttentionPair& pair = pairs[i];
    const int64_t first = std::max(row_begin, pair.qa), last = std::min(row_end, pair.qb);
    if (first >= last || pair.ka >= pair.kb) continue;
    // The ranges of a sequence whose diagonals end `shift` columns further right than its rows:
    // one of as many rows as make the offset of the lengths the shift.
    AttentionMask mask;
    mask.keys = pair.kb - pair.ka;
    mask.queries = mask.keys - pair.shift;
    mask.window_left = window_left;
    mask.window_right = window_right;
    const KeyBlocks blocks = attention_key_blocks(mask, first - pair.qa, last - pair.qa, block);
    const bool whole = pair.qa <= row_begin && row_end <= pair.qb;
    for (int64_t n = blocks.all.end - 1; n >= blocks.all.begin; --n) {
      const bool full = whole && blocks.full.begin <= n && n < blocks.full.end;
      visits.push_back({static_cast<int64_t>(i), pair.ka + n * block,
                        std::min(pair.ka + (n + 1) * block, pair.kb), !full});
    }
  }
  return visits;
}

int64_t attention_positions_blocks(const KernelSpec& spec, int64_t count, int64_t run) {
  return ceil_div(ceil_div(count, run), spec.threads / 32);
}

uint64_t attention_block_workspace_bytes(const KernelSpec& forward, int64_t keys) {
  if (forward.constant("pairs") != 0) return 0;
  constexpr int64_t kAlignment = 256;
  const int64_t bytes = ceil_div(keys, forward.constant("n")) * 2 * 4;
  return static_cast<uint64_t>(ceil_div(bytes, kAlignment) * kAlignment);
}

}  // namespace lathe
