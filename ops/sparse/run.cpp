// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of sparse_flash_attention: which kernels it holds, what the shapes of a call
// decide, the parameters and the launches.
#include "ops/sparse/run.h"

#include "codegen/base/invalid.h"
#include "ops/fill.h"
#include "ops/sparse/ranks.h"

namespace lathe {

namespace of_op = sparse_attention;

template <>
inline constexpr int kOtherOffsets<SparseBackwardWorkspace> = 2;  // zeroed_end, total
// These are of the workspace, or say where the keys of rows lie.
template <>
inline constexpr auto kOtherPointers<of_op::kTensors, SparseInputs> =
    std::tuple(&SparseInputs::key_starts, &SparseInputs::key_ends, &SparseInputs::key_origins,
               &SparseInputs::q_pos);
template <>
inline constexpr auto kOtherPointers<of_op::kTensors, SparseForwardParams> =
    std::tuple(&SparseForwardParams::partial_out, &SparseForwardParams::partial_max,
               &SparseForwardParams::partial_sum);
template <>
inline constexpr auto kOtherPointers<of_op::kTensors, SparseCombineParams> =
    std::tuple(&SparseCombineParams::partial_out, &SparseCombineParams::partial_max,
               &SparseCombineParams::partial_sum);
template <>
inline constexpr auto kOtherPointers<of_op::kTensors, SparseBackwardPrepareParams> =
    std::tuple(&SparseBackwardPrepareParams::delta, &SparseBackwardPrepareParams::dsinks_parts,
               &SparseBackwardPrepareParams::zeroed);
template <>
inline constexpr auto kOtherPointers<of_op::kTensors, SparseBackwardParams> = std::tuple(
    &SparseBackwardParams::delta, &SparseBackwardParams::slots, &SparseBackwardParams::listed,
    &SparseBackwardParams::lengths, &SparseBackwardParams::counts);
template <>
inline constexpr auto kOtherPointers<of_op::kTensors, SparseBackwardFinishParams> =
    std::tuple(&SparseBackwardFinishParams::dk_sums, &SparseBackwardFinishParams::dv_sums,
               &SparseBackwardFinishParams::dsinks_parts);

namespace {

Status too_many_blocks(const SparseShape& shape, int64_t splits) {
  return unsupported(text("q of ", shape.rows(), " rows and ", shape.heads,
                          " heads, with lists in ", splits, " parts and ",
                          shape.sequences * shape.seq_k, " keys, needs more than ", kMaxExtent,
                          " blocks; split the rows"));
}

int to_int(int64_t value) { return static_cast<int>(value); }

struct SparseCall {
  const SparseRequest& request;
  const SparsePlan& plan;
  const Call& call;
  const SparsePlaces* places = nullptr;  // null: the whole axes
};

// Returns parameters of a kernel with all tensors, sizes and arrays of the workspace that it has.
template <typename Params>
Params params_of(const SparseCall& of) {
  Params p = {};
  fill_tensors<of_op::kTensors>(of.call, of.request.tokens, &p);
  fill_numbers(of.plan.shape, &p);
  fill_numbers(of.request.problem, &p);
  fill_numbers(of.plan.backward, &p);
  fill_sections(of.plan.backward.workspace, of.call.workspace, &p);
  return p;
}

void put_places(const SparsePlaces& places, bool packed, SparseInputs* in) {
  if (places.q_pos) in->q_pos = places.q_pos, in->q_pos_batch_stride = 0;
  in->origin_stride = places.whole_keys;
  if (!packed) return;
  in->cu_seqlens_q = places.cu_seqlens_q;
  in->key_starts = places.key_starts;
  in->key_ends = places.key_ends;
  in->key_origins = places.key_origins;
  in->sequences = to_int(places.runs);
}

SparseInputs inputs(const SparseCall& of, int64_t head_tiles) {
  const SparseProblem& problem = of.request.problem;
  const SparseShape& shape = of.plan.shape;
  const auto& t = of.call.tensors;
  auto in = params_of<SparseInputs>(of);
  if (of.request.positions) in.q_pos = t[of_op::q_pos].data;
  in.q_pos_batch_stride = shape.seq_q, in.origin_stride = shape.seq_k;
  if (problem.packed) {
    in.key_starts = t[of_op::cu_seqlens_k].data;
    in.key_ends = t[of_op::cu_seqlens_k].data + bytes_of(problem.cu_seqlens);
    in.sequences = to_int(of.call.extents[Dim::N]);
  }
  if (of.places) put_places(*of.places, problem.packed, &in);
  in.block_shift = of.request.block_shift;
  in.absolute = of.request.absolute, in.causal = of.request.causal;
  if (problem.byte_rows) {  // which have no head
    in.k_batch_stride = 0, in.k_token_stride = t[of_op::k].stride[0], in.k_head_stride = 0;
  }
  if (problem.extra) {
    const Tensor& extra = t[of_op::k_extra];
    in.k_extra_token_stride = extra.stride[0];
    in.k_extra_head_stride = problem.byte_rows ? 0 : extra.stride[1];
    in.topk_extra = to_int(shape.extra);
    in.keys_extra = to_int(of.call.extents[Dim::Tx]);
  }
  in.head_tiles = to_int(head_tiles);
  in.scale = of.request.scale;
  return in;
}

// Returns the parameters for all rows, or for the chunk that begins at row 0.
SparseBackwardParams backward_params(const SparseCall& of) {
  const SparseBackwardLaunch& launch = of.plan.backward;
  const SparseGradients& wanted = of.request.gradients;
  auto p = params_of<SparseBackwardParams>(of);
  p.in = inputs(of, launch.head_tiles);
  if (wanted.dk) p.dk = of.call.workspace + launch.workspace.dk_sums;
  if (wanted.dv) p.dv = of.call.workspace + launch.workspace.dv_sums;
  // Without sums there is no room for lists.
  if (!wanted.dk && !wanted.dv) p.listed = nullptr;
  p.chunk = to_int(launch.chunk);
  p.entries = to_int(of.plan.shape.listed());
  return p;
}

SparseBackwardGatherParams gather_params(const SparseCall& of, const SparseBackwardParams& main,
                                         int64_t rows) {
  const SparseProblem& problem = of.request.problem;
  SparseBackwardGatherParams p = {};
  fill_sections(of.plan.backward.workspace, of.call.workspace, &p);
  p.dk = main.dk, p.dv = main.dv;
  p.keys = of.plan.backward.keys * of.plan.shape.kv_heads;
  p.chunk = main.chunk, p.rows = to_int(rows);
  p.kv_heads = main.in.kv_heads, p.head_tiles = main.in.head_tiles, p.entries = main.entries;
  p.key_width = problem.head_dim + problem.rope_dim;
  p.value_width = problem.values_in_keys ? 0 : problem.value_dim;
  return p;
}

}  // namespace

Result<SparseKernels> sparse_kernels(const SparseProblem& problem, const DeviceFacts& facts) {
  Result<SparseKernels> out(std::in_place);
  if (problem.forward) {
    LATHE_ASSIGN(out->forward, make_step(sparse_forwards(), problem, facts));
    if (problem.split) out->combine = sparse_combine_spec(problem);
  }
  if (problem.backward || problem.dsinks) {
    LATHE_ASSIGN(out->backward, sparse_backward_kernels(problem, facts));
  }
  return out;
}

SparseExecutor::SparseExecutor(const SparseRequest& request, SparseKernels kernels,
                               const DeviceFacts& facts)
    : request_(request),
      kernels_(std::move(kernels)),
      multiprocessors_(facts.multiprocessors),
      cached_(sparse_cached_bytes(facts)) {
  if (kernels_.forward) list({&kernels_.forward->kernel, &kernels_.combine});
  list(kernels_.backward.slots());
}

SparseShape SparseExecutor::shape(const Call& call) const {
  const Extents& e = call.extents;
  SparseShape shape;
  shape.sequences = request_.tokens ? 1 : e[Dim::B];
  shape.heads = e[Dim::H], shape.kv_heads = e[Dim::HK];
  shape.seq_q = e[request_.tokens ? Dim::Tq : Dim::Sq];
  shape.seq_k = e[request_.tokens ? Dim::Tk : Dim::Sk];
  if (problem().extra) shape.extra = e[Dim::topk2];
  shape.topk = e[Dim::topk], shape.block = int64_t{1} << request_.block_shift;
  return shape;
}

Status SparseExecutor::plan_forward(SparsePlan* plan) const {
  const SparseShape& shape = plan->shape;
  plan->forward = problem().forward && shape.rows() > 0 && shape.heads > 0;
  if (!plan->forward) return {};
  plan->splits = sparse_splits(problem(), kernels_.forward->tiling(), shape, multiprocessors_,
                               request_.splits);
  const int64_t splits = plan->splits;
  plan->head_tiles = sparse_head_tiles(kernels_.forward->tiling(), shape);
  plan->blocks = shape.rows() * shape.kv_heads * plan->head_tiles * splits;
  const int64_t joined = splits > 1 ? sparse_combine_blocks(*kernels_.combine, shape) : 0;
  if (std::max(plan->blocks, joined) > kMaxExtent) return too_many_blocks(shape, splits);
  if (splits == 1) return {};
  LATHE_TRY(checked_product("the workspace",
                            {splits, shape.rows(), shape.heads, problem().value_dim + 2, 4}));
  plan->partials = sparse_partials(problem(), shape, splits);
  return {};
}

Status SparseExecutor::plan_backward(SparsePlan* plan) const {
  if (!has_backward()) return {};
  LATHE_ASSIGN(plan->backward, sparse_backward_launch(problem(), kernels_.backward, plan->shape,
                                                      request_.gradients));
  const SparseBackwardLaunch& out = plan->backward;
  for (const int64_t count :
       {out.rows, out.prepare_blocks, out.ranges_blocks, out.gather_blocks, out.finish_blocks()}) {
    if (count > kMaxExtent) return too_many_blocks(plan->shape, 1);
  }
  if (out.row_blocks > 0 && out.chunk > kMaxExtent / out.row_blocks) {
    return too_many_blocks(plan->shape, 1);
  }
  return {};
}

Result<SparsePlan> SparseExecutor::plan(const Call& call) const {
  if (problem().byte_rows) LATHE_TRY(check_byte_rows(call.extents[Dim::bytes]));
  LATHE_TRY(check_sparse_extents(call.extents, request_.block_shift));
  SparsePlan out;
  out.shape = shape(call);
  // So that no product of rows, heads, parts and key heads overflows.
  LATHE_TRY(checked_product("q", {out.shape.sequences, out.shape.seq_q,
                                  std::max<int64_t>(out.shape.heads, 1), kMostSparseSplits, 8}));
  LATHE_TRY(plan_forward(&out));
  LATHE_TRY(plan_backward(&out));
  return out;
}

Status SparseExecutor::run_forward(const Call& call, const SparsePlan& plan,
                                   const SparsePlaces* places) const {
  if (!plan.forward) return {};
  const SparseCall of{request_, plan, call, places};
  auto p = params_of<SparseForwardParams>(of);
  p.in = inputs(of, plan.head_tiles);
  p.splits = to_int(plan.splits), p.sinks_apart = request_.sinks_apart;
  if (plan.splits == 1) return kernels_.forward->launch(p, plan.blocks, call.stream);
  auto combine = params_of<SparseCombineParams>(of);
  combine.partial_out = p.partial_out = call.workspace;
  combine.partial_max = p.partial_max = call.workspace + plan.partials.maxima;
  combine.partial_sum = p.partial_sum = call.workspace + plan.partials.sums;
  combine.rows = plan.shape.rows(), combine.sinks_apart = request_.sinks_apart;
  combine.splits = p.splits;
  LATHE_TRY(kernels_.forward->launch(p, plan.blocks, call.stream));
  return kernels_.combine.launch(sparse_combine_blocks(*kernels_.combine, plan.shape), &combine,
                                 call.stream);
}

Status SparseExecutor::run_prepare(const Call& call, const SparsePlan& plan) const {
  const SparseBackwardLaunch& launch = plan.backward;
  if (launch.prepare_blocks == 0) return {};
  auto p = params_of<SparseBackwardPrepareParams>({request_, plan, call});
  p.zero_chunks = launch.zero_chunks();
  p.tiles = to_int(launch.prepare_tiles);
  return kernels_.backward.prepare.launch(launch.prepare_blocks, &p, call.stream);
}

// Runs the main kernel over a chunk of rows, and the kernels that join its results in the order of
// the rows.
Status SparseExecutor::run_rows(const SparseBackwardParams& p, const SparsePlan& plan,
                                const Call& call) const {
  const SparseBackwardLaunch& launch = plan.backward;
  const int64_t rows = std::min(launch.chunk, launch.rows - p.first_row);
  if (rows * launch.row_blocks == 0) return {};
  LATHE_TRY(kernels_.backward.main->launch(p, rows * launch.row_blocks, call.stream));
  if (launch.ranges_blocks == 0) return {};
  const SparseBackwardGatherParams join = gather_params({request_, plan, call}, p, rows);
  LATHE_TRY(kernels_.backward.ranges.launch(launch.ranges_blocks, &join, call.stream));
  LATHE_TRY(kernels_.backward.fill.launch(rows * plan.shape.kv_heads, &join, call.stream));
  return kernels_.backward.gather.launch(launch.gather_blocks, &join, call.stream);
}

Status SparseExecutor::run_backward(const Call& call, const SparsePlan& plan,
                                    const SparsePlaces* places) const {
  if (!kernels_.backward.main) return {};
  SparseBackwardParams p = backward_params({request_, plan, call, places});
  for (int64_t chunk = 0; chunk < plan.backward.chunks; ++chunk) {
    p.first_row = to_int(chunk * plan.backward.chunk);
    LATHE_TRY(run_rows(p, plan, call));
  }
  return {};
}

Status SparseExecutor::run_finish(const SparseBackwardFinishParams& p, CUstream stream) const {
  const int64_t blocks = int64_t{p.dk_blocks} + p.dv_blocks + p.dsinks_blocks;
  return blocks == 0 ? Status() : kernels_.backward.finish.launch(blocks, &p, stream);
}

SparseBackwardFinishParams SparseExecutor::finish_params(const Call& call,
                                                         const SparsePlan& plan) const {
  auto p = params_of<SparseBackwardFinishParams>({request_, plan, call});
  p.tiles = to_int(plan.backward.prepare_tiles);
  return p;
}

Status SparseExecutor::launch(const Call& call, const SparsePlan& plan) const {
  LATHE_TRY(run_forward(call, plan, nullptr));
  if (!has_backward()) return {};
  LATHE_TRY(run_prepare(call, plan));
  LATHE_TRY(run_backward(call, plan, nullptr));
  return run_finish(finish_params(call, plan), call.stream);
}

Result<Estimate> SparseExecutor::estimate_plan(const Call&, const SparsePlan& plan) const {
  Estimate out;
  const auto add = [&out](const Cost& cost) { out.add({0, cost}); };
  if (plan.forward) {
    out.launches = plan.splits > 1 ? 2 : 1;
    add(sparse_forward_cost(problem(), kernels_.forward->tiling(), plan.shape, plan.splits,
                            cached_));
  }
  if (!has_backward()) return out;
  const SparseBackwardLaunch& backward = plan.backward;
  out.launches += (backward.prepare_blocks > 0) + (backward.finish_blocks() > 0);
  if (kernels_.backward.main && backward.row_blocks > 0) {
    out.launches += static_cast<uint64_t>(backward.chunks * (backward.ranges_blocks > 0 ? 4 : 1));
  }
  add(sparse_backward_cost(problem(), kernels_.backward, plan.shape, backward, cached_));
  return out;
}

namespace {

// Rows are independent of each other, with lists that are not cut: their results and gradients do
// not depend on the ranks. Gradients of keys and sinks are exact sums of what the rows contribute.
void make_rank_invariant(SparseRequest* request) {
  const SparseGradients& wanted = request->gradients;
  if (request->splits == 0) request->splits = 1;
  request->problem.split = request->splits != 1;
  request->problem.deterministic = wanted.dk || wanted.dv;
  request->problem.exact = wanted.dk || wanted.dv || wanted.dsinks;
  request->rank_invariant = true;
}

}  // namespace

MadeExecutor make_sparse(const Resolved& resolved, const DeviceFacts& its_facts) {
  LATHE_ASSIGN(SparseRequest request, sparse_request(resolved));
  const bool invariant = (resolved.problem.group_flags & kRankInvariant) != 0;
  if (invariant) make_rank_invariant(&request);
  // A measured tile would change the order of sums.
  const DeviceFacts facts = invariant ? without_choices(its_facts) : its_facts;
  LATHE_ASSIGN(const SparseGroup ranks, sparse_group(resolved.problem));
  LATHE_ASSIGN(SparseKernels kernels, sparse_kernels(request.problem, facts));
  auto own = std::make_unique<SparseExecutor>(request, std::move(kernels), facts);
  // One rank holds all keys.
  if (!ranks.group || (ranks.group->world() == 1 && !invariant))
    return std::unique_ptr<Executor>(std::move(own));
  return make_sparse_over_ranks(std::move(own), ranks);
}

}  // namespace lathe
