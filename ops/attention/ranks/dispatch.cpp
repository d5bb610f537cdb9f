// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements attention by dispatch: the needs of a problem, the state of a shard, and the layout of
// the workspace. Rows of a batch have equal lengths, so one plan serves them all, and they travel
// together.
#include "ops/attention/ranks/dispatch.h"

#include "codegen/base/invalid.h"
#include "ops/attention/step_schema.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

namespace att = attention;

// A byte to another rank costs this many operations of matrix units: half of an H100's published
// 16-bit rate, over the 50 GB/s of a network card.
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

MadeShardState DispatchShardState::make(const Device& device, const lathe_shard& shard,
                                        DispatchPlan plan, int tensors) {
  auto out = std::make_unique<DispatchShardState>();
  const int rank = shard.rank, world = shard.layout.world();
  const auto route = [&](const RowCopies& copies) {
    return RowRoute::make(device, copies_of_rank(copies, rank, plan.packs));
  };
  LATHE_ASSIGN(out->queries_there, route(plan.queries));
  LATHE_ASSIGN(out->queries_back, route(reversed(plan.queries)));
  LATHE_ASSIGN(out->keys_there, route(plan.keys));
  LATHE_ASSIGN(out->gradients, route(plan.gradients));
  LATHE_ASSIGN(out->ranges, DeviceTable::upload(device, plan.ranges[rank]));
  const DispatchSum sum = dispatch_sum(plan, rank, shard.layout.key_tokens(rank));
  LATHE_ASSIGN(out->documents, DeviceTable::upload(device, plan.documents[rank]));
  LATHE_ASSIGN(out->sum_first, DeviceTable::upload(device, sum.first));
  LATHE_ASSIGN(out->sum_terms, DeviceTable::upload(device, sum.terms));
  out->shares = shares_of_ranks(rank, world);
  size_t most = 2 * out->shares.sends.size();
  for (const RowRoute* each : {&out->queries_there, &out->keys_there, &out->gradients}) {
    most += (each->copies.sends.size() + each->copies.receives.size()) * tensors;
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
      tensors_(travellers_of(problem, request.problem, false)) {
  const AttentionProblem& asked = request.problem;
  const int64_t bytes = narrow_ ? bytes_of(asked.element) : 4;
  if (request.gradients.dk) {
    key_gradients_.push_back({att::dk, true, false, false, asked.head_dim, bytes});
  }
  if (request.gradients.dv) {
    key_gradients_.push_back({att::dv, true, false, false, asked.value_dim, bytes});
  }
}

Status AttentionDispatch::plan_with_heads() {
  const int64_t heads = request_.declared.heads, kv_heads = request_.declared.kv_heads;
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
  if (!key_gradients_.empty()) {
    add_keys_ = sum_rows_spec(narrow_ ? asked.element : Dtype::f32, asked.element, true);
  }
  if (asked.dsinks) add_sinks_ = sum_rows_spec(Dtype::f32, Dtype::f32, false);
  list({&kernels_.wide, &kernels_.narrow});
  for (const Part* step : steps_.all()) list(step->executor());
  list({&round_, &add_keys_, &add_sinks_});
  return {};
}

MadeExecutor make_attention_dispatch(const lathe_problem& problem, const AttentionRequest& request,
                                     const DeviceFacts& facts, Group* group) {
  LATHE_TRY(check_covered(request));
  auto executor = std::make_unique<AttentionDispatch>(problem, request, group);
  LATHE_TRY(executor->plan_with_heads());
  LATHE_TRY(executor->make_steps(facts));
  return std::unique_ptr<Executor>(std::move(executor));
}

MadeShardState AttentionDispatch::prepare(const lathe_shard& shard) const {
  DispatchRules rules = rules_;
  rules.limits.align = dispatch_alignment(shard.layout.length, shard.layout.world());
  LATHE_ASSIGN(DispatchPlan plan, plan_dispatch(shard.layout, rules));
  const int tensors = static_cast<int>(tensors_.size());
  return DispatchShardState::make(group_->device(), shard, std::move(plan), tensors);
}

void AttentionDispatch::lay_out(const Call& call, const Traveller& each, DispatchOffsets* offsets,
                                WorkspaceLayout* layout) const {
  const DispatchShardState& state = *offsets->state;
  const Layout& shards = call.shard->layout;
  const int64_t heads = each.keys ? offsets->kv_heads : offsets->heads;
  const int64_t row = offsets->batch * heads * each.width * each.bytes;
  const RowRoute& route = each.keys    ? state.keys_there
                          : each.there ? state.queries_there
                                       : state.queries_back;
  DispatchTensorOffsets& at = offsets->tensors[each.tensor];
  at.direct = !each.rows && offsets->batch == 1 &&
              is_compact(call.tensors[each.tensor], packed(), heads, each.width);
  if (!at.direct) {
    const int rank = call.shard->rank;
    const int64_t tokens = each.keys ? shards.key_tokens(rank) : shards.query_tokens(rank);
    at.home = layout->add({tokens, row});
  }
  if (route.send_rows.data()) at.sent = layout->add({route.copies.sent(), row});
  if (route.receive_rows.data()) at.received = layout->add({route.copies.received(), row});
  const int64_t arrived = each.keys ? state.keys : state.queries;
  at.far = layout->add({arrived, row});
  if (each.rows) at.dense = layout->add({arrived, row});
}

// Lays out the buffers that a step reads and writes beside the travelling tensors.
void AttentionDispatch::lay_out_step(const Call& call, DispatchOffsets* offsets,
                                     WorkspaceLayout* layout) const {
  const DispatchShardState& state = *offsets->state;
  const AttentionProblem& asked = request_.problem;
  const int64_t heads = offsets->batch * offsets->heads,
                kv_heads = offsets->batch * offsets->kv_heads;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const auto add = [&](bool there, std::initializer_list<int64_t> factors, int64_t* offset) {
    if (there) *offset = layout->add(factors);
  };
  add(forward() && rounds(), {state.queries, heads, values, 4}, &offsets->out);
  add(steps_.delta != nullptr, {state.queries, heads, 4}, &offsets->delta);
  // In float32 they travel as they are.
  const bool dq_travels = !rounds() && request_.gradients.dq;
  offsets->dq = offsets->tensors[att::dq].far;
  add(asked.backward && !dq_travels, {state.queries, heads, width, 4}, &offsets->dq);
  add(asked.backward, {state.keys, kv_heads, width, 4}, &offsets->dk);
  add(asked.backward, {state.keys, kv_heads, values, 4}, &offsets->dv);
  add(asked.dsinks, {group_->world(), offsets->padded_heads(), 4}, &offsets->dsinks);
  add(asked.dsinks, {offsets->padded_heads(), 4}, &offsets->dsinks_sum);

  const int64_t slots = state.plan.slot_tokens[call.shard->rank];
  for (const Traveller& each : key_gradients_) {
    DispatchTensorOffsets& at = offsets->tensors[each.tensor];
    at.far = each.tensor == att::dk ? offsets->dk : offsets->dv;
    const int64_t row = kv_heads * each.width * each.bytes;
    add(narrow_, {state.keys, row}, &at.far);
    add(state.gradients.send_rows.data() != nullptr, {state.gradients.copies.sent(), row},
        &at.sent);
    add(true, {slots, row}, &at.received);
  }
}

Result<DispatchOffsets> AttentionDispatch::plan(const Call& call) const {
  DispatchOffsets offsets;
  LATHE_ASSIGN(offsets.state, shard_state_of<DispatchShardState>(call));
  offsets.batch = packed() ? 1 : call.extents[Dim::B];
  offsets.heads = call.extents[Dim::H], offsets.kv_heads = call.extents[Dim::HK];
  LATHE_TRY(check_heads(offsets.heads, offsets.kv_heads));
  WorkspaceLayout layout;
  for (const Traveller& each : tensors_) lay_out(call, each, &offsets, &layout);
  lay_out_step(call, &offsets, &layout);
  size_t inner = 0;
  LATHE_TRY(for_steps(call, offsets, [&](const Executor& step, const Call& of) -> Status {
    LATHE_ASSIGN(const size_t bytes, step.workspace_bytes(of));
    inner = std::max(inner, bytes);
    return {};
  }));
  offsets.inner = layout.add({static_cast<int64_t>(inner)}, &offsets.inner_bytes);
  offsets.bytes = layout.total();
  LATHE_TRY(layout.status());
  return offsets;
}

// The rows that have arrived are the tensors of the steps.
namespace {

namespace att = attention;

}  // namespace

// Returns rows as they arrive: token after token, each with all rows of the batch.
TokenRows AttentionDispatch::arrived(const Call& call, const DispatchOffsets& offsets,
                                     int64_t offset, bool keys, int64_t width) const {
  TokenRows out;
  out.data = call.workspace + offset;
  out.batch = offsets.batch, out.tokens = keys ? offsets.state->keys : offsets.state->queries;
  out.heads = keys ? offsets.kv_heads : offsets.heads, out.width = width;
  out.head_stride = width, out.batch_stride = out.heads * width;
  out.token_stride = out.batch * out.batch_stride;
  return out;
}

BlockInputs AttentionDispatch::inputs(const Call& call, const DispatchOffsets& offsets) const {
  const DispatchShardState& state = *offsets.state;
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  BlockInputs out;
  out.q = arrived(call, offsets, offsets.tensors[att::q].far, false, width);
  out.keys = {arrived(call, offsets, offsets.tensors[att::k].far, true, width),
              arrived(call, offsets, offsets.tensors[att::v].far, true, values)};
  out.ranges = state.ranges.data();
  out.range_count = static_cast<int64_t>(state.plan.ranges[call.shard->rank].size());
  if (names_documents()) out.range_sequences = state.documents.data();
  out.slopes = call.tensors[att::alibi_slopes].data;
  out.slopes_batch_stride = request_.alibi_rows ? offsets.heads : 0;
  return out;
}

Call AttentionDispatch::inner_call(const Call& call, const DispatchOffsets& offsets) const {
  Call out;
  out.stream = call.stream;
  out.workspace = call.workspace + offsets.inner;
  out.workspace_bytes = static_cast<size_t>(offsets.inner_bytes);
  return out;
}

Call AttentionDispatch::step_call(const Call& call, const DispatchOffsets& offsets) const {
  Call out = inner_call(call, offsets);
  steps_.put_forward(*steps_.first, inputs(call, offsets), step_out(call, offsets),
                     call.workspace + offsets.tensors[att::lse].dense, call, &out);
  return out;
}

Call AttentionDispatch::merge_call(const Call& call, const DispatchOffsets& offsets) const {
  Call out = inner_call(call, offsets);
  steps_.put_finish(
      step_out(call, offsets), call.workspace + offsets.tensors[att::lse].dense,
      arrived(call, offsets, offsets.tensors[att::out].far, false, request_.problem.value_dim),
      call, &out);
  return out;
}

Call AttentionDispatch::delta_call(const Call& call, const DispatchOffsets& offsets) const {
  const auto rows = [&](int tensor) {
    return arrived(call, offsets, offsets.tensors[tensor].far, false, request_.problem.value_dim);
  };
  const int64_t share = offsets.dsinks + call.shard->rank * offsets.padded_heads() * 4;
  char* const at = call.workspace;
  Call out = inner_call(call, offsets);
  steps_.put_delta({rows(att::out), rows(att::dout), at + offsets.tensors[att::lse].dense,
                    at + offsets.tensors[att::dlse].dense, at + offsets.delta, at + share},
                   call, &out);
  return out;
}

Call AttentionDispatch::gradient_call(const Call& call, const DispatchOffsets& offsets) const {
  const int64_t width = request_.problem.head_dim, values = request_.problem.value_dim;
  Call out = inner_call(call, offsets);
  steps_.put_gradients(*steps_.gradients_next, inputs(call, offsets),
                       {arrived(call, offsets, offsets.tensors[att::dout].far, false, values),
                        arrived(call, offsets, offsets.dq, false, width),
                        {arrived(call, offsets, offsets.dk, true, width),
                         arrived(call, offsets, offsets.dv, true, values)},
                        call.workspace + offsets.tensors[att::lse].dense,
                        call.workspace + offsets.delta},
                       call, &out);
  return out;
}

}  // namespace lathe
