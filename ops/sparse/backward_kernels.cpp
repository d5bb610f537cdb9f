// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the backward of sparse attention, and computes its grids, chunks of rows,
// workspace and cost.
#include "ops/sparse/backward_kernels.h"

#include "codegen/base/integers.h"
#include "ops/tiles.h"
#include "ops/workspace.h"
#include "templates/params/exact_sums.h"
#include "templates/params/sparse_attention.h"

namespace lathe {
namespace {

constexpr int kPrepareRows = 64, kPrepareThreads = 128, kGroupsAlone = 4, kFinishThreads = 256,
              kGatherThreads = 256;
// `groups`: parts in which delta is summed.
KernelSpec prepare_spec(const SparseProblem& problem, int groups) {
  const int smem_bytes = kPrepareThreads / 32 * 4;  // a float32 of each warp
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("sparse", "sparse_backward_prepare", SparseBackwardPrepareParams, reserved),
      "SparseBackwardPrepareSmem", smem_bytes, kPrepareThreads,
      {Constant::type("element", "Element", problem.element),
       Constant::integer("value_width", "kValueWidth", sparse_padded_width(problem.value_dim)),
       Constant::integer("m", "kTileM", kPrepareRows),
       Constant::integer("groups", "kGroups", groups),
       Constant::flag("sinks", "kSinks", problem.dsinks)});
  if (problem.dsinks && problem.exact) spec.add({Constant::flag("terms", "kTerms", true)});
  return spec;
}

KernelSpec finish_spec(const SparseProblem& problem) {
  return KernelSpec::of(
      LATHE_TEMPLATE("sparse", "sparse_backward_finish", SparseBackwardFinishParams, dsinks_blocks),
      kFinishThreads, {Constant::type("element", "Element", problem.element)});
}

KernelSpec gather_spec(const char* kernel) {
  return KernelSpec::of(LATHE_TEMPLATE("sparse", kernel, SparseBackwardGatherParams, reserved),
                        kGatherThreads);
}

}  // namespace

std::vector<KernelSlot*> SparseBackwardKernels::slots() {
  std::vector<KernelSlot*> out = {&prepare};
  if (main) out.push_back(&main->kernel);
  out.insert(out.end(), {&ranges, &fill, &gather, &finish});
  return out;
}

Result<SparseBackwardKernels> sparse_backward_kernels(const SparseProblem& problem,
                                                      const DeviceFacts& facts) {
  Result<SparseBackwardKernels> out(std::in_place);
  out->finish = finish_spec(problem);
  if (problem.backward) {
    LATHE_ASSIGN(out->main, make_step(sparse_backwards(), problem, facts));
  }
  out->prepare = prepare_spec(problem, out->main ? out->main->groups() : kGroupsAlone);
  if (!problem.backward || !problem.deterministic) return out;
  out->ranges = gather_spec("sparse_backward_ranges");
  out->fill = gather_spec("sparse_backward_fill");
  KernelSpec gather = gather_spec("sparse_backward_gather");
  if (problem.exact) gather.add({Constant::flag("exact", "kExact", true)});
  out->gather = gather;
  return out;
}

// Grids, chunks of rows, the workspace and the cost follow from shapes alone.
namespace {

constexpr int64_t kColumnsOfThread = 8;  // in finish
constexpr int64_t kColumnsOfWarp = 128;  // in gather
constexpr int64_t kZeroChunks = 8;       // of a thread in prepare, 16 bytes each
constexpr int64_t kMostChunk = 1024;     // rows: beyond, the device has long been full
constexpr int64_t kMostPlaces = (int64_t{1} << 31) - 1;
constexpr int64_t kMostBlocks = (int64_t{1} << 32) - 1;  // of all chunks
constexpr int64_t kMostBytes = int64_t{1} << 60;

int64_t key_width(const SparseProblem& problem) { return problem.head_dim + problem.rope_dim; }
int64_t slot_width(const SparseProblem& problem) {
  return key_width(problem) + (problem.values_in_keys ? 0 : problem.value_dim);
}

// Chooses the rows of a chunk: chunks are equal, and as few as the budget allows.
void choose_chunk(const SparseProblem& problem, const SparseShape& shape, bool ordered,
                  SparseBackwardLaunch* launch) {
  if (!ordered || launch->rows == 0) {
    launch->chunk = launch->rows, launch->chunks = launch->rows > 0 ? 1 : 0;
    return;
  }
  const int64_t entries = bounded_product({shape.kv_heads, shape.listed()});
  const int64_t bytes = bounded_product({entries, launch->head_tiles, slot_width(problem), 4}) +
                        bounded_product({launch->keys, shape.kv_heads, 4});
  const int64_t slots = std::max<int64_t>(bounded_product({entries, launch->head_tiles}), 1);
  const int64_t most =
      std::min({kSparseChunkBytes / std::max<int64_t>(bytes, 1), kMostPlaces / slots, kMostChunk});
  launch->chunks = ceil_div(launch->rows, std::max<int64_t>(most, 1));
  launch->chunk = ceil_div(launch->rows, launch->chunks);
}

// Returns the bytes of a sum for the gradients of keys.
int64_t bytes_of_sum(const SparseProblem& problem) { return problem.exact ? 8 * kExactWords : 4; }

void lay_out(const SparseProblem& problem, const SparseShape& shape, const SparseGradients& wanted,
             bool ordered, SparseBackwardLaunch* launch) {
  SparseBackwardWorkspace& at = launch->workspace;
  const int64_t heads = shape.heads, keys = bounded_product({launch->keys, shape.kv_heads});
  const int64_t chunk = ordered ? bounded_product({launch->chunk, shape.kv_heads}) : 0;
  const bool dv = wanted.dv && !problem.values_in_keys;
  WorkspaceLayout layout;
  at.delta = layout.add({4, launch->rows, heads});
  const int64_t parts = problem.exact ? launch->rows : launch->prepare_tiles;
  at.dsinks_parts = layout.add({4, wanted.dsinks ? parts : 0, heads});
  at.zeroed = layout.total();
  at.dk_sums = layout.add({bytes_of_sum(problem), wanted.dk ? keys : 0, key_width(problem)});
  at.dv_sums = layout.add({bytes_of_sum(problem), dv ? keys : 0, problem.value_dim});
  at.counts = layout.add({4, ordered ? launch->chunk : 0, keys});
  at.cursor = layout.add({4, ordered ? 1 : 0});
  at.zeroed_end = layout.total();
  at.slots = layout.add({4, chunk, launch->head_tiles, shape.listed(), slot_width(problem)});
  at.listed = layout.add({4, chunk, shape.listed()});
  at.lengths = layout.add({4, chunk});
  at.ranges = layout.add({4, ordered ? keys : 0, 2});
  at.index = layout.add({4, chunk, shape.listed()});
  at.total = layout.fits() ? layout.total() : kMostBytes;
}

// Checks the integers of the kernels: 32 bits for the blocks of all chunks, 31 for the keys and
// entries of a chunk.
Status check_counts(const SparseShape& shape, bool ordered, const SparseBackwardLaunch& launch) {
  if (launch.workspace.total >= kMostBytes) {
    return invalid("sparse_flash_attention: the workspace passes 2^60 bytes");
  }
  if (!ordered) return {};
  const int64_t keys = bounded_product({launch.keys, shape.kv_heads});
  const int64_t slots = bounded_product({launch.chunk, launch.row_blocks, shape.listed()});
  const int64_t blocks = bounded_product({launch.rows, launch.row_blocks});
  if (keys <= kMostPlaces && slots <= kMostPlaces && blocks <= kMostBlocks) return {};
  return invalid(text("sparse_flash_attention: a deterministic backward has ", keys,
                      " keys of all heads, ", slots, " entries of a row and ", blocks,
                      " blocks; allowed are ", kMostPlaces, ", ", kMostPlaces, " and ",
                      kMostBlocks));
}

}  // namespace

Result<SparseBackwardLaunch> sparse_backward_launch(const SparseProblem& problem,
                                                    const SparseBackwardKernels& kernels,
                                                    const SparseShape& shape,
                                                    const SparseGradients& wanted) {
  SparseBackwardLaunch out;
  const bool dv = wanted.dv && !problem.values_in_keys;
  const bool ordered = kernels.gather.has_value() && (wanted.dk || dv);
  out.rows = shape.rows(), out.keys = bounded_product({shape.sequences, shape.seq_k});
  out.head_tiles = kernels.main ? sparse_head_tiles(kernels.main->tiling(), shape) : 1;
  out.prepare_tiles = ceil_div(out.rows, kernels.prepare.numbers().rows);
  choose_chunk(problem, shape, ordered, &out);
  out.row_blocks = kernels.main ? bounded_product({shape.kv_heads, out.head_tiles}) : 0;
  lay_out(problem, shape, wanted, ordered, &out);
  const int64_t keys = bounded_product({out.keys, shape.kv_heads});
  out.prepare_blocks = bounded_product({out.prepare_tiles, shape.heads}) +
                       ceil_div(out.zero_chunks(), kernels.prepare->threads * kZeroChunks);
  if (ordered) {
    const int64_t parts = ceil_div(slot_width(problem), kColumnsOfWarp);
    out.ranges_blocks = ceil_div(keys, kernels.ranges->threads / 32);
    out.gather_blocks = ceil_div(bounded_product({keys, parts}), kernels.gather->threads / 32);
  }
  const int threads = kernels.finish->threads;
  if (wanted.dk) {
    out.dk_blocks =
        ceil_div(bounded_product({keys, key_width(problem) / kColumnsOfThread}), threads);
  }
  if (dv)
    out.dv_blocks =
        ceil_div(bounded_product({keys, problem.value_dim / kColumnsOfThread}), threads);
  if (wanted.dsinks && !problem.exact) out.dsinks_blocks = ceil_div(shape.heads, threads / 32);

  LATHE_TRY(check_counts(shape, ordered, out));
  return out;
}

Cost sparse_backward_cost(const SparseProblem& problem, const SparseBackwardKernels& kernels,
                          const SparseShape& shape, const SparseBackwardLaunch& launch,
                          int64_t cached) {
  constexpr int64_t kElement = 2, kFloat = 4;
  const int64_t width = key_width(problem), values = problem.value_dim, slot = slot_width(problem);
  const int64_t own = launch.rows * shape.heads,
                listed = launch.rows * shape.kv_heads * shape.listed();
  const int64_t keys = launch.keys * shape.kv_heads;
  Cost cost;
  // q, dq, out, dout and lse; keys and values that lists name, and all their gradients.
  cost.minimum_bytes = static_cast<uint64_t>(own * ((2 * width + 2 * values) * kElement + kFloat) +
                                             launch.rows * shape.kv_heads * shape.topk * kFloat +
                                             (std::min(listed, keys) + keys) * slot * kElement);
  // dout read again, delta written and read; sums zeroed and read, and what is added to them.
  int64_t bytes = own * (values * kElement + 2 * kFloat) + 2 * keys * slot * bytes_of_sum(problem);
  if (kernels.main) {
    const SparseTiling& main = kernels.main->tiling();
    const int64_t tiles = launch.head_tiles, added = listed * tiles * slot;
    const bool kept = keys * slot * (kElement + kFloat) <= cached;
    if (!kept) bytes += added * kElement - std::min(listed, keys) * slot * kElement;
    if (!kept || kernels.gather) bytes += added * kFloat * (kernels.gather ? 2 : 1);
    const int64_t steps = ceil_div(shape.listed(), main.keys);
    cost.flops = static_cast<uint64_t>(2 * listed * shape.group() * (3 * width + 2 * values));
    cost.tensor_ops =
        static_cast<uint64_t>(2 * launch.rows * shape.kv_heads * tiles * main.heads * steps *
                              main.keys * (3 * main.width + 2 * main.value_width));
  }
  cost.bytes = cost.minimum_bytes + static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
  return cost;
}

}  // namespace lathe
