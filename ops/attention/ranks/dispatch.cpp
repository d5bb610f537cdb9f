// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by dispatch: what a problem needs, what a shard's lengths say, and where everything
// lies. Rows of a batch have equal lengths, so one plan serves them all, and they travel together.
#include "ops/attention/ranks/dispatch.h"

#include "codegen/base/invalid.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

namespace att = attention;

// What a byte to another rank costs in operations of matrix units: half of what an H100 is
// published with in 16 bits, over the 50 GB/s of a network card.
constexpr int64_t kOperationsOfByte = 8000;

Status check_covered(const AttentionRequest& request) {
  if (!request.alibi_rows || !request.problem.packed) return {};
  return unsupported("alibi_slopes are [B,H]; with LATHE_DISPATCH and cu_seqlens_q allowed is [H]");
}

bool is_compact(const Tensor& tensor, bool packed, int64_t heads, int64_t width) {
  const int token = packed ? 0 : 1;
  return tensor.stride[token] == heads * width && tensor.stride[token + 1] == width;
}

}  // namespace

Result<std::unique_ptr<const ShardState>> DispatchShardState::make(const Device& device,
                                                                   const lathe_shard& shard,
                                                                   DispatchPlan plan, int tensors) {
  auto out = std::make_unique<DispatchShardState>();
  const int rank = shard.rank, world = shard.layout.world();
  const auto route = [&](const Moves& moves) {
    return RowRoute::make(device, moves_of_rank(moves, rank, plan.packs));
  };
  LATHE_ASSIGN(out->queries_there, route(plan.queries));
  LATHE_ASSIGN(out->queries_back, route(reversed(plan.queries)));
  LATHE_ASSIGN(out->keys_there, route(plan.keys));
  LATHE_ASSIGN(out->gradients, route(plan.gradients));
  const auto& pairs = plan.pairs[rank];
  static_assert(sizeof(PairRow) == 7 * sizeof(int32_t));
  LATHE_ASSIGN(out->pairs, table_of(device, {reinterpret_cast<const int32_t*>(pairs.data()),
                                             7 * pairs.size()}));
  const DispatchSum sum = dispatch_sum(plan, rank, shard.layout.key_tokens(rank));
  LATHE_ASSIGN(out->documents, table_of(device, plan.documents[rank]));
  LATHE_ASSIGN(out->sum_first, table_of(device, sum.first));
  LATHE_ASSIGN(out->sum_terms, table_of(device, sum.terms));
  out->shares = shares_of_ranks(rank, world);
  size_t most = 2 * out->shares.sends.size();
  for (const RowRoute* each : {&out->queries_there, &out->keys_there, &out->gradients}) {
    most += (each->moves.sends.size() + each->moves.receives.size()) * tensors;
  }
  out->sends.resize(most), out->receives.resize(most);
  out->queries = plan.query_tokens[rank], out->keys = plan.key_tokens[rank];
  out->plan = std::move(plan);
  return std::unique_ptr<const ShardState>(std::move(out));
}

AttentionDispatch::AttentionDispatch(const lathe_problem& problem, const AttentionRequest& request,
                                     Group* group)
    : request_(request),
      group_(group),
      reduces_((problem.group_flags & kReduceParameterGrads) != 0),
      narrow_((problem.group_flags & kNarrowGradients) != 0 &&
              request.problem.element != Dtype::f32),
      tensors_(travellers_of(problem, request.problem, false)) {}

Status AttentionDispatch::plan_with_heads() {
  const int64_t heads = request_.promised.heads, kv_heads = request_.promised.kv_heads;
  if (heads == kUnknown || kv_heads == kUnknown) {
    return invalid(text("q has H = ", heads, " and k has HK = ", kv_heads,
                        "; LATHE_DISPATCH plans with them, so they must be given"));
  }
  const AttentionProblem& asked = request_.problem;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const int64_t element = bytes_of(asked.element), both = asked.backward ? 2 : 1;
  rules_.limits.q_bytes = heads * (width + values) * element * both;
  rules_.limits.kv_bytes = kv_heads * (width + values) * element;
  rules_.limits.visible = {request_.window_left, request_.window_right};
  rules_.pair_cost = 2 * heads * ((width + values) + (asked.backward ? 3 * width + 2 * values : 0));
  rules_.byte_cost = kOperationsOfByte;
  rules_.choice = request_.options.dispatch;
  rules_.most_tokens = request_.options.dispatch_tokens;
  return {};
}

Status AttentionDispatch::make_steps(const DeviceFacts& facts) {
  const AttentionProblem& asked = request_.problem;
  LATHE_TRY(steps_.make(request_, facts, false));
  if (asked.backward && rounds()) round_ = sum_rows_spec(Dtype::f32, asked.element, false);
  if (keys_have_gradients()) {
    add_keys_ = sum_rows_spec(narrow_ ? asked.element : Dtype::f32, asked.element, true);
  }
  if (asked.dsinks) add_sinks_ = sum_rows_spec(Dtype::f32, Dtype::f32, false);
  list({&kernels_.wide, &kernels_.narrow});
  for (const Part* step : steps_.all()) list(step->executor());
  list({&round_, &add_keys_, &add_sinks_});
  return {};
}

Result<std::unique_ptr<Executor>> make_attention_dispatch(const lathe_problem& problem,
                                                          const AttentionRequest& request,
                                                          const DeviceFacts& facts, Group* group) {
  LATHE_TRY(check_covered(request));
  auto executor = std::make_unique<AttentionDispatch>(problem, request, group);
  LATHE_TRY(executor->plan_with_heads());
  LATHE_TRY(executor->make_steps(facts));
  return std::unique_ptr<Executor>(std::move(executor));
}

Result<std::unique_ptr<const ShardState>> AttentionDispatch::prepare(
    const lathe_shard& shard) const {
  DispatchRules rules = rules_;
  rules.limits.align = dispatch_alignment(shard.layout.length, shard.layout.world());
  LATHE_ASSIGN(DispatchPlan plan, plan_dispatch(shard.layout, rules));
  const int tensors = static_cast<int>(tensors_.size());
  return DispatchShardState::make(group_->device(), shard, std::move(plan), tensors);
}

void AttentionDispatch::lay_out(const Call& call, const Traveller& each, DispatchLaid* laid,
                                WorkspaceLayout* layout) const {
  const DispatchShardState& state = *laid->state;
  const Layout& shards = call.shard->layout;
  const int64_t heads = each.keys ? laid->kv_heads : laid->heads;
  const int64_t row = laid->batch * heads * each.width * each.bytes;
  const RowRoute& route = each.keys    ? state.keys_there
                          : each.there ? state.queries_there
                                       : state.queries_back;
  DispatchSpot& spot = laid->spots[each.tensor];
  spot.direct = !each.rows && laid->batch == 1 &&
                is_compact(call.tensors[each.tensor], packed(), heads, each.width);
  if (!spot.direct) {
    const int rank = call.shard->rank;
    const int64_t tokens = each.keys ? shards.key_tokens(rank) : shards.query_tokens(rank);
    spot.home = layout->add({tokens, row});
  }
  if (route.send_rows.data()) spot.sent = layout->add({route.moves.sent(), row});
  if (route.receive_rows.data()) spot.received = layout->add({route.moves.received(), row});
  const int64_t arrived = each.keys ? state.keys : state.queries;
  spot.far = layout->add({arrived, row});
  if (each.rows) spot.dense = layout->add({arrived, row});
}

// What a step reads and writes beside what travels.
void AttentionDispatch::lay_out_step(const Call& call, DispatchLaid* laid,
                                     WorkspaceLayout* layout) const {
  const DispatchShardState& state = *laid->state;
  const AttentionProblem& asked = request_.problem;
  const int64_t heads = laid->batch * laid->heads, kv_heads = laid->batch * laid->kv_heads;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const auto add = [&](bool there, std::initializer_list<int64_t> factors, int64_t* offset) {
    if (there) *offset = layout->add(factors);
  };
  add(forward() && rounds(), {state.queries, heads, values, 4}, &laid->out);
  add(steps_.delta != nullptr, {state.queries, heads, 4}, &laid->delta);
  // In float32 they travel as they are.
  const bool dq_travels = !rounds() && request_.gradients.dq;
  laid->dq = laid->spots[att::dq].far;
  add(asked.backward && !dq_travels, {state.queries, heads, width, 4}, &laid->dq);
  add(asked.backward, {state.keys, kv_heads, width, 4}, &laid->dk);
  add(asked.backward, {state.keys, kv_heads, values, 4}, &laid->dv);
  add(asked.dsinks, {group_->world(), laid->padded_heads(), 4}, &laid->dsinks);
  add(asked.dsinks, {laid->padded_heads(), 4}, &laid->dsinks_sum);

  const int64_t slots = state.plan.slot_tokens[call.shard->rank];
  const int64_t bytes = narrow_ ? bytes_of(asked.element) : 4;
  const bool wanted[] = {request_.gradients.dk, request_.gradients.dv};
  for (const int i : {0, 1}) {
    if (!wanted[i]) continue;
    const int64_t columns = i == 0 ? width : values;
    DispatchSpot& spot = laid->spots[i == 0 ? att::dk : att::dv];
    spot.far = i == 0 ? laid->dk : laid->dv;
    const int64_t row = kv_heads * columns * bytes;
    add(narrow_, {state.keys, row}, &spot.far);
    add(state.gradients.send_rows.data() != nullptr, {state.gradients.moves.sent(), row},
        &spot.sent);
    add(true, {slots, row}, &spot.received);
  }
}

Result<DispatchLaid> AttentionDispatch::lay_out(const Call& call) const {
  DispatchLaid laid;
  LATHE_ASSIGN(laid.state, shard_state_of<DispatchShardState>(call));
  laid.batch = packed() ? 1 : call.extents[Letter::B];
  laid.heads = call.extents[Letter::H], laid.kv_heads = call.extents[Letter::HK];
  LATHE_TRY(check_heads(laid.heads, laid.kv_heads));
  WorkspaceLayout layout;
  for (const Traveller& each : tensors_) lay_out(call, each, &laid, &layout);
  lay_out_step(call, &laid, &layout);
  size_t inner = 0;
  LATHE_TRY(for_steps(call, laid, [&](const Executor& step, const Call& of) -> Status {
    LATHE_ASSIGN(const size_t bytes, step.workspace_bytes(of));
    inner = std::max(inner, bytes);
    return {};
  }));
  laid.inner = layout.add({static_cast<int64_t>(inner)}, &laid.inner_bytes);
  laid.total = layout.total();
  LATHE_TRY(layout.status());
  return laid;
}

Result<size_t> AttentionDispatch::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const DispatchLaid laid, lay_out(call));
  return static_cast<size_t>(laid.total);
}

}  // namespace lathe
