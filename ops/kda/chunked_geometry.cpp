// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes grids, workspace and cost of chunked KDA from shapes alone.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/kda/chunked_kernels.h"
#include "ops/workspace.h"
#include "templates/params/kda.h"
#include "templates/params/kda_chunked.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/kda_warpgroups.h"

namespace lathe {
namespace {

constexpr int64_t kFinishColumns = 32;  // of a block

KdaSegmentShape segments_of(const KdaProblem& problem, const KdaChunkedShape& shape) {
  return {shape.sequences, shape.value_heads, shape.segments, problem.key_dim, problem.value_dim};
}

// Packed rows of no sequence are padding, which somebody has to write.
KdaChunkedShape with_padding(const KdaProblem& problem, KdaChunkedShape shape) {
  if (problem.packed && shape.tokens > 0) shape.sequences = std::max<int64_t>(shape.sequences, 1);
  return shape;
}

}  // namespace

int64_t kda_rows(const KdaProblem& problem, const KdaChunkedShape& shape) {
  return problem.packed ? shape.tokens : shape.sequences * shape.tokens;
}

int64_t kda_chunks(const KdaProblem& problem, const KdaChunkedShape& shape, int64_t size) {
  return problem.packed ? shape.tokens / size + shape.sequences : ceil_div(shape.tokens, size);
}

int64_t kda_slots(bool packed, int64_t sequences, int64_t tokens) {
  return packed ? tokens / kKdaChunk + sequences : sequences * ceil_div(tokens, kKdaChunk);
}

int64_t kda_slots(const KdaProblem& problem, const KdaChunkedShape& shape) {
  return kda_slots(problem.packed, with_padding(problem, shape).sequences, shape.tokens);
}

int64_t kda_value_tiles(const KdaProblem& problem, int64_t columns) {
  return ceil_div(problem.value_dim, columns);
}

int64_t KdaLaunch::count() const {
  return (summary() > 0) + (merge > 0) + (forward > 0) + (states > 0) + (scan() > 0) +
         (backward > 0) + (finish > 0);
}

int64_t kda_blocks_at_once(const KernelSpec& walk, const DeviceFacts& facts) {
  constexpr int kReserved = 1024;          // shared memory of a block for the system
  constexpr int kRegistersOfThread = 256;  // of which a walk takes most
  const int by_shared = facts.shared_bytes_per_multiprocessor / (walk.smem_bytes + kReserved);
  const int by_registers = facts.registers_per_multiprocessor / (kRegistersOfThread * walk.threads);
  return int64_t{facts.multiprocessors} * std::max(1, std::min(by_shared, by_registers));
}

int64_t kda_segments(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                     const DeviceFacts& facts, const KdaChunkedShape& shape, int asked) {
  const int64_t chunks = ceil_div(shape.tokens, kKdaChunk);  // of the longest sequence, at most
  const bool cut = problem.segmented || problem.warmup;
  if (!cut || chunks == 0 || shape.sequences == 0) return 1;
  if (asked > 0) return std::min<int64_t>(asked, chunks);
  if (kernels.cluster) {
    return kda_cluster_segments({bounded_product({shape.sequences, shape.value_heads}),
                                 problem.packed ? shape.tokens / shape.sequences : shape.tokens,
                                 facts.multiprocessors});
  }
  const KernelSpec& walk = kernels.forward ? *kernels.forward->kernel : *kernels.scan->kernel;
  const int64_t columns = kernels.forward ? kernels.forward->columns() : kernels.scan->columns();
  KdaSegmentProblem question;
  question.heads = bounded_product({shape.sequences, shape.value_heads});
  question.value_tiles = kda_value_tiles(problem, columns);
  question.key_tiles = ceil_div(problem.key_dim, columns);
  question.tokens =
      problem.packed ? shape.tokens / std::max<int64_t>(shape.sequences, 1) : shape.tokens;
  question.blocks_at_once = kda_blocks_at_once(walk, facts);
  // A call that gives o as well walks in one direction at a time.
  question.forward = problem.forward || problem.recomputes();
  question.back = kernels.scan != nullptr && !problem.forward;
  question.ranks = problem.ranks;
  question.apart = kernels.states != nullptr;
  if (kernels.summary) {
    question.link_tokens = kernels.summary->link_tokens;
    question.launch_tokens = kernels.summary->launch_tokens;
  }
  return kda_choose_segments(question);
}

namespace {

// Returns how many runs of `run` chunks there are.
int64_t runs_of(const KdaProblem& problem, const KdaChunkedShape& shape, int64_t run) {
  const int64_t sequences = with_padding(problem, shape).sequences, tokens = run * kKdaChunk;
  return problem.packed ? shape.tokens / tokens + sequences
                        : sequences * ceil_div(shape.tokens, tokens);
}

// Returns how many chunks a block goes through: the most with which the device takes no more turns,
// of a chunk each, than with one in a block, or a 32nd more. What pieces of sequences leave must
// not depend on how many pieces there are, nor bits on the shape where the caller fixes them.
int64_t run_of(const KdaProblem& problem, const KdaChunkedKernels& kernels,
               const KdaChunkedShape& shape) {
  const int64_t at_once = kernels.backward->blocks_at_once();
  if (at_once == 0 || problem.sums_outside || problem.fixed_segments > 0) return 1;
  const auto turns = [&](int64_t run) {
    const int64_t blocks = bounded_product({runs_of(problem, shape, run), shape.heads});
    return bounded_product({ceil_div(blocks, at_once), run});
  };
  const int64_t least = turns(1);
  int64_t run = kKdaLongestRun;
  while (run > 1 && turns(run) - least > least / 32) run /= 2;
  return run;
}

}  // namespace

KdaLaunch kda_launch(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                     const KdaChunkedShape& shape) {
  KdaLaunch out;
  const int64_t rows = kda_rows(problem, shape);
  const auto walk = [&](int64_t columns, const KdaChunkedShape& of) {
    return bounded_product(
        {of.sequences, of.value_heads, kda_value_tiles(problem, columns), of.segments});
  };
  // Without tokens there are only states, which are handed through.
  if (kernels.forward && (rows > 0 || problem.final_state)) {
    out.forward = walk(kernels.forward->columns(), with_padding(problem, shape));
    if (shape.clustered) out.cluster = shape.segments;
  }
  if (kernels.scan && (rows > 0 || problem.dinitial_state)) {
    out.scan_back = walk(kernels.scan->columns(), shape);
    const bool again = problem.recomputes() && rows > 0;
    if (again && kernels.states) out.states = walk(kernels.states->columns(), shape);
    if (again && !kernels.states) out.scan_forward = out.scan_back;
  }
  if (kernels.summary && rows > 0) {
    const KdaSegmentShape segments = segments_of(problem, shape);
    const KdaSummaryBlocks blocks = kda_summary_blocks(*kernels.summary, segments, problem.ranks);
    out.summary_forward = blocks.forward, out.summary_back = blocks.back;
    if (kernels.merge) {
      out.merge = kda_merge_blocks(kernels.merge.numbers(), segments);
      out.merge_rows = kda_merge_rows(kernels.merge.numbers(), segments);
    }
  }
  if (kernels.backward && rows > 0) {
    out.run = run_of(problem, kernels, shape);
    out.backward = bounded_product({runs_of(problem, shape, out.run), shape.heads});
    if (kernels.states && kernels.states->leaves_out()) out.kept_run = out.run;
  }
  if (kernels.finish) {
    const int64_t rates = problem.dA_log ? shape.value_heads : 0;
    const int64_t biases =
        problem.ddt_bias ? bounded_product({shape.value_heads, problem.key_dim}) : 0;
    out.finish = ceil_div(biases, kFinishColumns) + ceil_div(rates, kFinishColumns);
  }
  return out;
}

Result<KdaWorkspace> kda_workspace(const KdaProblem& problem, const KdaChunkedShape& shape,
                                   bool saved_outside) {
  KdaWorkspace out;
  const bool walks_back = problem.backward || problem.dinitial_state;
  const int64_t rows = kda_rows(problem, shape), slots = kda_slots(problem, shape);
  const int64_t heads = shape.value_heads, k = problem.key_dim, v = problem.value_dim;
  const int64_t element = bytes_of(problem.element);
  const int64_t saved = problem.backward && !saved_outside ? 1 : 0;
  KdaSegmentShape segments = segments_of(problem, shape);
  if (!problem.segmented) segments.segments = 1;
  // A forward in one segment, which is the call that has to be fast, keeps nothing.
  if (segments.segments == 1 && !problem.ranks && !walks_back) return out;
  WorkspaceLayout layout;
  const int64_t before = problem.pool && !shape.clustered ? shape.sequences : 0;
  out.before = layout.add({4, before, heads, v, k});
  const int64_t ends = shape.clustered ? bounded_product({segments.runs(), kKdaClusterEnd})
                                       : kda_end_numbers(segments);
  out.summaries = layout.add({4, ends});
  const int64_t maps = shape.clustered ? bounded_product({segments.runs(), kKdaClusterMap})
                                       : kda_transition_numbers(segments);
  out.transitions = layout.add({4, maps});
  out.grad_ends = layout.add({4, walks_back ? kda_end_numbers(segments) : 0});
  out.saved_values = layout.add({element, saved, rows, heads, v});
  out.saved_states = layout.add({element, saved, slots, heads, v, k});
  out.value_grads = layout.add({element, walks_back ? rows : 0, heads, v});
  out.state_grads = layout.add({element, walks_back ? slots : 0, heads, v, k});
  out.rate_sums = layout.add({4, problem.dA_log ? slots : 0, heads});
  out.bias_sums = layout.add({4, problem.ddt_bias ? slots : 0, heads, k});
  out.total = layout.total();
  LATHE_TRY(layout.status());
  return out;
}

Cost kda_chunked_cost(const KdaProblem& problem, const KdaChunkedKernels& kernels,
                      const KdaChunkedShape& shape, int64_t chunk_size) {
  const int64_t rows = kda_rows(problem, shape), slots = kda_slots(problem, shape);
  const int64_t heads = shape.heads, value_heads = shape.value_heads;
  const int64_t k = problem.key_dim, v = problem.value_dim;
  const int64_t element = bytes_of(problem.element), gate = bytes_of(problem.gate);
  const int64_t beta = bytes_of(problem.beta);
  const uint64_t keys = unsigned_product({rows, heads, k, element});          // q, or k
  const uint64_t values = unsigned_product({rows, value_heads, v, element});  // v, o, do, ...
  const uint64_t gates = unsigned_product({rows, value_heads, k * gate + beta});
  const uint64_t state = unsigned_product({value_heads, k, v, 4});  // of one sequence
  const uint64_t states = unsigned_product({shape.sequences}) * state;
  const uint64_t slot_states = unsigned_product({slots, value_heads, k, v, element});
  const KdaLaunch launch = kda_launch(problem, kernels, shape);
  Cost cost;
  // Adds a walk whose blocks of threads take so many tensor operations for 16 tokens. Value heads
  // that share q and k, and tiles of V, walk side by side: L2 reads memory once.
  const auto walk = [&](int64_t columns, int64_t tensor_ops) {
    cost.tensor_ops += unsigned_product(
        {ceil_div(rows, kKdaBlock), value_heads, kda_value_tiles(problem, columns), tensor_ops});
    cost.bytes += 2 * keys + gates;
  };
  const int64_t parts = kda_sum_parts(problem),
                columns = kernels.scan ? kernels.scan->columns() : 0;
  if (launch.summary() > 0) {
    const Cost segments = kda_segments_cost(problem, *kernels.summary, kernels.merge.numbers(),
                                            segments_of(problem, shape), rows);
    cost.bytes += segments.bytes, cost.tensor_ops += segments.tensor_ops;
    cost.flops += segments.flops;
  }
  if (launch.forward > 0) {
    const KdaForward& forward = launch.cluster > 1 ? *kernels.cluster : *kernels.forward;
    walk(forward.columns(), forward.tensor_ops(problem));
    if (launch.cluster > 1) {
      const Cost before = kda_cluster_cost(problem, forward, segments_of(problem, shape), rows);
      cost.bytes += before.bytes, cost.tensor_ops += before.tensor_ops;
    }
    uint64_t moved_states = (problem.initial_state + problem.final_state) * states;
    if (problem.pool) {
      moved_states =
          (2 * unsigned_product({shape.sequences}) + unsigned_product({shape.checkpoints})) *
          state / 4 * static_cast<uint64_t>(bytes_of(problem.pooled));
    }
    const int64_t chunks =
        kda_chunks(problem, shape, chunk_size) * (problem.packed ? 1 : shape.sequences);
    const uint64_t chunk_states = problem.chunk_states ? unsigned_product({chunks}) * state : 0;
    cost.minimum_bytes += 2 * keys + gates + 2 * values + moved_states + chunk_states;
    cost.bytes += 2 * values + moved_states + chunk_states;
    if (problem.saves) cost.bytes += values + slot_states;
    cost.flops += 6 * unsigned_product({rows, value_heads, k, v});
  }
  if (launch.scan() > 0) {
    walk(columns, kernels.scan->tensor_ops(problem));
    if (launch.scan_forward > 0) walk(columns, kda_walk_ops(problem, {columns, 1, parts}));
    if (launch.states > 0) {
      walk(kernels.states->columns(), kernels.states->tensor_ops(problem));
      cost.bytes -= keys;  // it reads no queries
    }
    const uint64_t moved_states = (problem.dht + problem.dinitial_state) * states;
    const uint64_t made_again = problem.recomputes() ? problem.initial_state * states : 0;
    cost.minimum_bytes += values + moved_states;            // do; the rest is the backward's
    cost.bytes += 2 * values + slot_states + moved_states;  // do, and gradients of what is kept
    if (problem.recomputes()) {
      const auto kept = static_cast<uint64_t>(launch.kept_run);
      cost.bytes += 2 * values + slot_states / kept + made_again;
    }
    cost.flops += 6 * unsigned_product({rows, value_heads, k, v});
    if (problem.recomputes()) cost.flops += 4 * unsigned_product({rows, value_heads, k, v});
  }
  if (launch.backward > 0) {
    cost.tensor_ops +=
        unsigned_product({slots, value_heads, kernels.backward->tensor_ops(problem)});
    // Of each chunk of a run but the last one the next state is made, of 64 values at a time.
    const int64_t carried = slots - runs_of(problem, shape, launch.run);
    cost.tensor_ops +=
        unsigned_product({carried, value_heads, 2 * kKdaChunk, kda_padded_keys(problem),
                          round_up(problem.value_dim, 64)});
    cost.minimum_bytes += 2 * (2 * keys + gates) + 2 * values;  // in and out; v and dv
    if (problem.forward) cost.minimum_bytes -= 2 * keys + gates + values;
    // Beside them do, y and vn, and dh, and h of each run. For each pass over columns of K a block
    // reads the first three again, 48 KB of a chunk, which L2 still holds. Rows of dv may be there.
    const auto run = static_cast<uint64_t>(launch.run);
    cost.bytes += 2 * (2 * keys + gates) + 2 * values + 3 * values + slot_states;
    cost.bytes += slot_states / run;
    if (kernels.backward->by_beta()) cost.bytes -= values;
    cost.flops += 6 * unsigned_product({rows, value_heads, k, v});
  }
  if (launch.finish > 0) {
    cost.bytes +=
        unsigned_product({slots, value_heads, 4 * 2 * (k * problem.ddt_bias + problem.dA_log)});
  }
  return cost;
}

}  // namespace lathe
