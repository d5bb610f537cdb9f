// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements attention by dispatch: the needs of a problem, and the state of a shard. Rows of a
// batch have equal lengths, so one plan serves them all, and they travel together.
#include "ops/attention/ranks/dispatch.h"

#include "codegen/base/invalid.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

// A byte to another rank costs this many operations of matrix units: half of an H100's published
// 16-bit rate, over the 50 GB/s of a network card.
constexpr int64_t kOperationsOfByte = 8000;

Status check_covered(const AttentionRequest& request) {
  if (!request.alibi_rows || !request.problem.packed) return {};
  return unsupported("alibi_slopes are [B,H]; with LATHE_DISPATCH and cu_seqlens_q allowed is [H]");
}

}  // namespace

MadeShardState DispatchShardState::make(const Device& device, const lathe_shard& shard,
                                        DispatchPlan plan, size_t tensors) {
  auto out = std::make_unique<DispatchShardState>();
  const int rank = shard.rank;
  const auto route = [&](const RowCopies& copies) {
    return RowRoute::make(device, copies_of_rank(copies, rank, plan.packs));
  };
  LATHE_ASSIGN(out->queries_out, route(plan.queries));
  LATHE_ASSIGN(out->queries_home, route(reversed(plan.queries)));
  LATHE_ASSIGN(out->keys_out, route(plan.keys));
  LATHE_ASSIGN(out->gradients, route(plan.gradients));
  LATHE_ASSIGN(out->ranges, DeviceTable::upload(device, plan.ranges[rank]));
  const DispatchSum sum = dispatch_sum(plan, rank, shard.layout.key_tokens(rank));
  LATHE_ASSIGN(out->documents, DeviceTable::upload(device, plan.documents[rank]));
  LATHE_ASSIGN(out->sum_first, DeviceTable::upload(device, sum.first));
  LATHE_ASSIGN(out->sum_terms, DeviceTable::upload(device, sum.terms));
  size_t messages = 0;
  for (const RowRoute* each : {&out->queries_out, &out->keys_out, &out->gradients}) {
    messages += (each->copies.sends.size() + each->copies.receives.size()) * tensors;
  }
  out->add_dsinks(rank, shard.layout.world(), shard.layout.world(), messages);
  out->queries = plan.query_tokens[rank], out->keys = plan.key_tokens[rank];
  out->plan = std::move(plan);
  return std::unique_ptr<const ShardState>(std::move(out));
}

DispatchAttention::DispatchAttention(const lathe_problem& problem,
                                     const AttentionRequest& its_request, Group* its_group)
    : request(its_request),
      group(its_group),
      reduces((problem.group_flags & kReduceParameterGrads) != 0),
      narrow((problem.group_flags & kNarrowGradients) != 0 &&
             its_request.problem.element != Dtype::f32),
      tensors(hop_tensors(problem, its_request.problem)) {
  for (HopTensor& each : tensors) {
    if (each.is_key_gradient() && !narrow) each.bytes = 4;
  }
}

Status DispatchAttention::plan_with_heads() {
  const int64_t heads = request.declared.heads, kv_heads = request.declared.kv_heads;
  if (heads == kUnknown || kv_heads == kUnknown) {
    return invalid(text("q has H = ", heads, " and k has HK = ", kv_heads,
                        "; LATHE_DISPATCH plans with them, so they must be given"));
  }
  const AttentionProblem& asked = request.problem;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const int64_t element = bytes_of(asked.element), both = asked.backward ? 2 : 1;
  rules.limits.q_bytes = heads * (width + values) * element * both;
  rules.limits.kv_bytes = kv_heads * (width + values) * element;
  rules.limits.visible = {request.window_left, request.window_right};
  rules.pair_cost = 2 * heads * ((width + values) + (asked.backward ? 3 * width + 2 * values : 0));
  rules.byte_cost = kOperationsOfByte;
  rules.choice = request.options.dispatch;
  rules.most_tokens = request.options.dispatch_tokens;
  return {};
}

Status DispatchAttention::make_steps(const DeviceFacts& facts) {
  const AttentionProblem& asked = request.problem;
  LATHE_TRY(steps.make(request, facts, false));
  if (asked.backward && rounds()) round = sum_rows_spec(Dtype::f32, asked.element, false);
  if (request.gradients.dk || request.gradients.dv) {
    add_keys = sum_rows_spec(narrow ? asked.element : Dtype::f32, asked.element, true);
  }
  if (asked.dsinks) add_sinks = sum_rows_spec(Dtype::f32, Dtype::f32, false);
  list({&row_kernels.wide, &row_kernels.narrow});
  for (const AttentionStep* step : steps.all()) {
    if (*step) list(**step);
  }
  list({&round, &add_keys, &add_sinks});
  return {};
}

MadeExecutor make_attention_dispatch(const lathe_problem& problem, const AttentionRequest& request,
                                     const DeviceFacts& facts, Group* group) {
  LATHE_TRY(check_covered(request));
  auto executor =
      std::make_unique<RankExecutor<DispatchAttention, DispatchRun>>(problem, request, group);
  LATHE_TRY(executor->plan_with_heads());
  LATHE_TRY(executor->make_steps(facts));
  return std::unique_ptr<Executor>(std::move(executor));
}

MadeShardState DispatchAttention::prepare(const lathe_shard& shard) const {
  DispatchRules asked = rules;
  asked.limits.align = dispatch_alignment(shard.layout.length, shard.layout.world());
  LATHE_ASSIGN(DispatchPlan plan, plan_dispatch(shard.layout, asked));
  return DispatchShardState::make(group->device(), shard, std::move(plan), tensors.size());
}

Status DispatchAttention::check(const Call& call) const {
  LATHE_TRY(shard_state_of<DispatchShardState>(call));
  return check_heads(call.extents[Dim::H], call.extents[Dim::HK]);
}

}  // namespace lathe
