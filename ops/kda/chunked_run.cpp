// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of `kda`: which kernels it holds, the workspace of a call, the launches.
#include "ops/kda/chunked_run.h"

#include <algorithm>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/fill.h"
#include "ops/kda/ranks.h"
#include "ops/kda/ranks_pieces.h"

namespace lathe {
namespace {

// Positions of tokens that are fetched ahead are added in 32 bits.
constexpr int64_t kMostTokens = int64_t{1} << 30;

}  // namespace

KdaExecutor::KdaExecutor(const KdaRequest& request, const DeviceFacts& facts,
                         KdaChunkedKernels kernels)
    : request_(request), facts_(facts), kernels_(std::move(kernels)) {
  list(kernels_.slots());
}

KdaChunkedShape KdaExecutor::shape(const Call& call, int64_t sequences) const {
  const Extents& extents = call.extents;
  KdaChunkedShape out;
  out.sequences = sequences;
  out.heads = extents[Dim::H], out.value_heads = extents[Dim::HV];
  out.tokens = extents[Dim::T];
  out.checkpoints = std::max<int64_t>(extents[Dim::C], 0);
  out.segments = kda_segments(problem(), kernels_, facts_, out, request_.segments);
  out.clustered = kernels_.cluster != nullptr && out.segments > 1;
  return out;
}

Result<KdaLaunch> KdaExecutor::check(const Call& call, const KdaChunkedShape& shape) const {
  LATHE_TRY(check_kda_extents(call.extents, problem().packed));
  LATHE_TRY(check_kda_chunks(call.extents, problem().packed, request_.chunk_size));
  if (shape.tokens > kMostTokens) {
    return unsupported(text("q has T = ", shape.tokens, "; allowed are 0 to ", kMostTokens));
  }
  if (kernels_.scan && shape.heads > 0 && shape.value_heads == 0) {
    return invalid(text("v has HV = 0 and q has H = ", shape.heads,
                        "; allowed with a backward are HV that are a multiple of H from H on"));
  }
  const KdaLaunch launch = kda_launch(problem(), kernels_, shape);
  for (const int64_t blocks : {launch.summary(), launch.merge, launch.forward, launch.states,
                               launch.scan(), launch.backward, launch.finish}) {
    if (blocks <= kMaxExtent) continue;
    return unsupported(text("v of ", shape.sequences, " sequences, ", shape.value_heads,
                            " value heads and ", shape.tokens, " tokens needs more than ",
                            kMaxExtent, " blocks; split the batch"));
  }
  return launch;
}

Result<KdaPlan> KdaExecutor::plan(const Call& call, int64_t sequences) const {
  Result<KdaPlan> out(std::in_place);
  out->shape = shape(call, sequences);
  LATHE_ASSIGN(out->launch, check(call, out->shape));
  LATHE_ASSIGN(out->workspace, kda_workspace(problem(), out->shape, request_.saved_outside));
  return out;
}

// States of a pool, what a backward may be given by its caller, and the total.
template <>
inline constexpr int kOtherOffsets<KdaWorkspace> = 4;
// These are of the workspace, or tensors that other fields are named after.
template <>
inline constexpr auto kOtherPointers<kda::kTensors, KdaForwardParams> = std::tuple(
    &KdaForwardParams::summaries, &KdaForwardParams::transitions, &KdaForwardParams::chunk_states,
    &KdaForwardParams::saved_values, &KdaForwardParams::saved_states);
template <>
inline constexpr auto kOtherPointers<kda::kTensors, KdaSummaryParams> =
    std::tuple(&KdaSummaryParams::d_o, &KdaSummaryParams::dht, &KdaSummaryParams::summaries,
               &KdaSummaryParams::transitions, &KdaSummaryParams::grad_ends);
template <>
inline constexpr auto kOtherPointers<kda::kTensors, KdaMergeParams> = std::tuple(
    &KdaMergeParams::summaries, &KdaMergeParams::transitions, &KdaMergeParams::grad_ends);
template <>
inline constexpr auto kOtherPointers<kda::kTensors, KdaBackwardScanParams> =
    std::tuple(&KdaBackwardScanParams::summaries, &KdaBackwardScanParams::grad_ends,
               &KdaBackwardScanParams::d_o, &KdaBackwardScanParams::dht,
               &KdaBackwardScanParams::saved_values, &KdaBackwardScanParams::saved_states,
               &KdaBackwardScanParams::value_grads, &KdaBackwardScanParams::state_grads);
template <>
inline constexpr auto kOtherPointers<kda::kTensors, KdaBackwardParams> = std::tuple(
    &KdaBackwardParams::d_o, &KdaBackwardParams::saved_values, &KdaBackwardParams::saved_states,
    &KdaBackwardParams::value_grads, &KdaBackwardParams::state_grads, &KdaBackwardParams::rate_sums,
    &KdaBackwardParams::bias_sums);
template <>
inline constexpr auto kOtherPointers<kda::kTensors, KdaBackwardFinishParams> =
    std::tuple(&KdaBackwardFinishParams::rate_sums, &KdaBackwardFinishParams::bias_sums,
               &KdaBackwardFinishParams::dA_log, &KdaBackwardFinishParams::ddt_bias);

template <typename Params>
Params KdaExecutor::params_of(const KdaCall& of) const {
  const auto& t = of.call.tensors;
  Params p = {};
  fill_tensors<kda::kTensors>(of.call, false, &p);
  fill_numbers(of.plan.shape, &p);
  fill_numbers(problem(), &p);
  fill_sections(of.plan.workspace, of.call.workspace, &p);
  if constexpr (requires { p.do_head_stride; }) {
    p.d_o = t[kda::d_o].data;
    put_strides(attention_strides(t[kda::d_o], false), &p.do_batch_stride, &p.do_token_stride,
                &p.do_head_stride);
  }
  if constexpr (requires { p.in; }) p.in = inputs_of(of);
  if constexpr (requires { p.pool; }) p.pool = pool_of(of);
  if constexpr (requires { p.carry; }) p.carry = of.shard.carry;
  // Returns the address of a caller's state tensor at local sequence 0.
  const auto states = [&](int tensor) -> char* {
    const int64_t each = int64_t{4} * problem().key_dim * problem().value_dim;
    char* const data = t[tensor].data;
    return data ? data + of.shard.first * of.plan.shape.value_heads * each : nullptr;
  };
  if constexpr (requires { p.initial_state; }) p.initial_state = states(kda::initial_state);
  if constexpr (requires { p.final_state; }) p.final_state = states(kda::final_state);
  if constexpr (requires { p.dht; }) p.dht = states(kda::dht);
  if constexpr (requires { p.dinitial_state; }) p.dinitial_state = states(kda::dinitial_state);
  if constexpr (requires { p.value_grads_head_stride; }) {
    const int64_t width = problem().value_dim, row = of.plan.shape.value_heads * width;
    AttentionStrides strides = {row * of.plan.shape.tokens, row, width};
    if (t[kda::dv].data != nullptr && kernels_.backward && kernels_.backward->by_beta()) {
      p.value_grads = t[kda::dv].data, strides = attention_strides(t[kda::dv], false);
    }
    put_strides(strides, &p.value_grads_batch_stride, &p.value_grads_token_stride,
                &p.value_grads_head_stride);
  }
  if constexpr (requires { p.saved_values; }) {
    const bool outside = request_.saved_outside;
    char* const workspace = of.call.workspace;
    p.saved_values =
        outside ? t[kda::saved_values].data : workspace + of.plan.workspace.saved_values;
    p.saved_states =
        outside ? t[kda::saved_states].data : workspace + of.plan.workspace.saved_states;
  }
  return p;
}

KdaInputs KdaExecutor::inputs_of(const KdaCall& of) const {
  auto in = params_of<KdaInputs>(of);
  if (of.shard.ranks) in.cu_seqlens = of.shard.cu_seqlens;
  in.value_tiles = static_cast<int>(kda_value_tiles(problem(), kernels_.tile.values()));
  in.scale = request_.scale;
  in.lower_bound = request_.lower_bound;
  in.beta_factor = request_.beta_factor;
  return in;
}

KdaPool KdaExecutor::pool_of(const KdaCall& of) const {
  KdaPool pool = {};
  if (!problem().pool) return pool;
  const auto& t = of.call.tensors;
  const Tensor& states = t[kda::state_pool];
  pool.states = states.data;
  pool.slot_stride = states.stride[0];
  pool.head_stride = states.stride[1];
  pool.row_stride = states.stride[2];
  pool.state_indices = t[kda::state_indices].data;
  pool.source_indices = t[kda::source_indices].data;
  pool.has_initial_state = t[kda::has_initial_state].data;
  pool.cu_checkpoints = t[kda::cu_checkpoints].data;
  pool.checkpoint_tokens = t[kda::checkpoint_tokens].data;
  pool.checkpoint_slots = t[kda::checkpoint_slots].data;
  pool.before = of.call.workspace + of.plan.workspace.before;
  pool.slots = static_cast<int>(of.call.extents[Dim::S]);
  pool.null_slot = request_.null_slot;
  pool.checkpoints = static_cast<int>(of.plan.shape.checkpoints);
  return pool;
}

KdaSummaryParams KdaExecutor::summary_params(const KdaCall& of, const KdaSummary& summary) const {
  auto p = params_of<KdaSummaryParams>(of);
  p.in.value_tiles = static_cast<int>(kda_value_tiles(problem(), summary.columns()));
  p.forward_blocks = static_cast<int>(of.plan.launch.summary_forward);
  p.carried = of.shard.carry.carried;
  p.open = of.shard.ranks ? of.shard.carry.open : p.in.sequences;
  p.wanted_only = !problem().ranks;
  return p;
}

Status KdaExecutor::run_walks(const KdaCall& of) const {
  const KdaLaunch& launch = of.plan.launch;
  if (launch.merge > 0) {
    auto p = params_of<KdaMergeParams>(of);
    if (of.shard.ranks) p.cu_seqlens = of.shard.cu_seqlens;
    p.rows = static_cast<int>(launch.merge_rows);
    LATHE_TRY(kernels_.merge.launch(launch.merge, &p, of.call.stream));
  }
  if (launch.forward > 0) {
    auto p = params_of<KdaForwardParams>(of);
    if (!problem().saves) p.saved_values = p.saved_states = nullptr;
    const Tensor& chunks = of.call.tensors[kda::chunk_states];
    p.chunk_states = chunks.data;
    p.chunk_size = request_.chunk_size;
    p.kept_tokens = kKdaChunk;
    // Rows of a batch one after another, and those of packed sequences as far as there is room.
    p.chunks = static_cast<int>(std::min(chunks.extent[0] * chunks.extent[1], kMaxExtent));
    const KdaForward& forward = launch.cluster > 1 ? *kernels_.cluster : *kernels_.forward;
    p.in.value_tiles = static_cast<int>(kda_value_tiles(problem(), forward.columns()));
    LATHE_TRY(forward.launch(p, launch.forward, of.call.stream));
  }
  return run_backward(of);
}

Status KdaExecutor::run_backward(const KdaCall& of) const {
  const KdaLaunch& launch = of.plan.launch;
  // Without tokens no chunk leaves anything.
  const int slots = launch.backward > 0 ? static_cast<int>(kda_slots(problem(), of.plan.shape)) : 0;
  if (launch.states > 0) {
    auto p = params_of<KdaForwardParams>(of);
    p.in.value_tiles = static_cast<int>(kda_value_tiles(problem(), kernels_.states->columns()));
    p.kept_tokens = static_cast<int>(launch.kept_run * kKdaChunk);
    LATHE_TRY(kernels_.states->launch(p, launch.states, of.call.stream));
  }
  if (launch.scan() > 0) {
    auto p = params_of<KdaBackwardScanParams>(of);
    if (launch.scan_forward == 0) p.saved_values = p.saved_states = nullptr;
    p.forward_blocks = static_cast<int>(launch.scan_forward);
    p.in.value_tiles = static_cast<int>(kda_value_tiles(problem(), kernels_.scan->columns()));
    LATHE_TRY(kernels_.scan->launch(p, launch.scan(), of.call.stream));
  }
  if (launch.backward > 0) {
    auto p = params_of<KdaBackwardParams>(of);
    if (!problem().dA_log) p.rate_sums = nullptr;
    if (!problem().ddt_bias) p.bias_sums = nullptr;
    p.slots = slots, p.run = static_cast<int>(launch.run);
    LATHE_TRY(kernels_.backward->launch(p, launch.backward, of.call.stream));
  }
  if (launch.finish == 0) return {};
  auto p = params_of<KdaBackwardFinishParams>(of);
  p.dA_log = of.call.tensors[kda::dA_log].data;
  p.ddt_bias = of.call.tensors[kda::ddt_bias].data;
  p.slots = slots;
  return kernels_.finish.launch(launch.finish, &p, of.call.stream);
}

Status KdaExecutor::launch(const Call& call, const KdaPlan& plan) const {
  const KdaCall of = {call, plan};
  if (plan.launch.summary() > 0) {
    const KdaSummaryParams p = summary_params(of, *kernels_.summary);
    LATHE_TRY(kernels_.summary->launch(p, plan.launch.summary(), call.stream));
  }
  return run_walks(of);
}

Result<Estimate> KdaExecutor::estimate_plan(const Call&, const KdaPlan& plan) const {
  Estimate out;
  out.launches = static_cast<uint64_t>(plan.launch.count());
  out.cost = kda_chunked_cost(problem(), kernels_, plan.shape, request_.chunk_size);
  return out;
}

namespace {

// Returns whether a call may have more than one segment: one of few and long sequences may, unless
// the problem declares otherwise.
bool may_cut(const KdaRequest& request, const KdaChunkedKernels& kernels,
             const DeviceFacts& facts) {
  KdaChunkedShape shape = request.declared;
  if (shape.sequences == kUnknown) shape.sequences = 1;
  if (shape.value_heads == kUnknown) shape.value_heads = 1;
  if (shape.tokens == kUnknown) shape.tokens = kMostTokens;
  return kda_segments(request.problem, kernels, facts, shape, request.segments) > 1;
}

}  // namespace

MadeExecutor make_kda(const Resolved& resolved, const DeviceFacts& facts) {
  const lathe_problem& problem = resolved.problem;
  Group* group = problem.group ? problem.group->group.get() : nullptr;
  LATHE_ASSIGN(KdaRequest request, kda_request(resolved));
  const bool invariant = (problem.group_flags & kRankInvariant) != 0;
  request.problem.ranks = group && (group->world() > 1 || invariant);
  if (request.problem.ranks && request.problem.warmup) {
    return invalid(
        "option warmup_segments is set and the problem has a group; allowed with one is 0: the "
        "states that ranks exchange are exact");
  }
  if (invariant) {
    return make_kda_rank_invariant(request, facts, group,
                                   (problem.group_flags & kReduceParameterGrads) != 0);
  }
  LATHE_ASSIGN(KdaChunkedKernels kernels, kda_chunked_kernels(request.problem, facts));
  if (request.problem.segmented && !may_cut(request, kernels, facts)) {
    request.problem.segmented = false;
    LATHE_ASSIGN(kernels, kda_chunked_kernels(request.problem, facts));
  }
  auto executor = std::make_unique<KdaExecutor>(request, facts, std::move(kernels));
  if (!request.problem.ranks) return std::unique_ptr<Executor>(std::move(executor));
  return make_kda_over_ranks(std::move(executor), facts, group,
                             (problem.group_flags & kReduceParameterGrads) != 0);
}

}  // namespace lathe
