// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by exchanged heads: what travels and where it lies.
// After DeepSpeed Ulysses (arXiv 2309.14509), for any balance: whole sequences are put together in
// the order of their positions, so the call in the middle knows nothing of ranks.
#include <algorithm>
#include <cstdlib>

#include "codegen/base/invalid.h"
#include "ops/attention/ranks/heads_executor.h"
#include "ops/attention/ranks/sharded.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

namespace att = attention;

}  // namespace

AttentionHeads::AttentionHeads(const lathe_problem& problem, const AttentionRequest& request,
                               Group* group)
    : request_(request),
      group_(group),
      reduces_((problem.group_flags & kReduceParameterGrads) != 0),
      travellers_(travellers_of(problem, request.problem, true)) {
  for (int i = 0; i < att::count; ++i) {
    if (problem.has(i)) declared_.push_back(i);
  }
}

Status AttentionHeads::split() {
  const int64_t asked = request_.options.head_ranks;
  const int world = group_->world(), rank = group_->rank();
  const int count = static_cast<int>(std::min<int64_t>(asked, world + 1));
  if (count == 0 || count == world) return {};
  if (count > world || world % count != 0) {
    return invalid(text("option head_ranks is ", asked, ", but the group has ", world,
                        " ranks; allowed are 0 and what divides that"));
  }
  if (!group_->connected()) {
    ring_ = Group::unconnected(world / count, rank / count);
    of_heads_ = Group::unconnected(count, rank % count);
    group_ = of_heads_.get();
    return {};
  }
  LATHE_ASSIGN(ring_, Group::split(*group_, rank % count, rank));
  LATHE_ASSIGN(of_heads_, Group::split(*group_, rank / count, rank));
  group_ = of_heads_.get();
  return {};
}

Status AttentionHeads::make_part(unsigned flags, const DeviceFacts& facts) {
  const AttentionShape& declared = request_.promised;
  LATHE_ASSIGN(const HeadShare share,
               head_share(declared.heads, declared.kv_heads, group_->world()));
  AttentionRequest inner = request_;
  inner.first_head = group_->rank() * share.q_heads;
  inner.promised = {declared.sequences, share.q_heads, share.kv_heads, kUnknown, kUnknown};
  inner.ratio = share.kv_heads > 0 ? share.q_heads / share.kv_heads : kUnknown;
  if (ring_) {
    LATHE_ASSIGN(part_,
                 Part::make("flash_attention", make_attention_sharded(inner, facts, ring_.get(),
                                                                      flags & ~kExchangeHeads)));
  } else {
    LATHE_TRY(check_without_ranks(inner));
    LATHE_ASSIGN(part_, Part::make("flash_attention", make_attention(inner, facts)));
  }
  const Dtype element = request_.problem.element;
  if (share.repeat > 1) sum_ = sum_rows_spec(element, element, false);
  list({&kernels_.wide, &kernels_.narrow, &sum_});
  list(part_->executor());
  return {};
}

Result<std::unique_ptr<const ShardState>> AttentionHeads::prepare(const lathe_shard& shard) const {
  auto out = std::make_unique<HeadsShardState>();
  const Device& device = group_->device();
  const int count = group_->world(), rank = group_->rank();
  const int first = shard.rank - rank;
  size_t most = 0;
  for (const bool keys : {false, true}) {
    const ShardLayout& layout = keys ? shard.layout.keys : shard.layout.queries;
    const ShardLayout inside = inside_part(layout, first, count);
    int64_t& all = keys ? out->all_keys : out->all_queries;
    for (const auto& intervals : inside) {
      for (const Interval& interval : intervals) all += interval.size();
    }
    const Moves moves = axis_moves(inside);
    const bool packs = most_between(moves) * 3 > kMostMessages;
    HeadsRoutes& routes = keys ? out->keys : out->queries;
    LATHE_ASSIGN(routes.there, RowRoute::make(device, moves_of_rank(moves, rank, packs)));
    LATHE_ASSIGN(routes.back, RowRoute::make(device, moves_of_rank(reversed(moves), rank, packs)));
    most += routes.there.moves.sends.size() + routes.there.moves.receives.size();
  }
  out->dsinks = shares_of_ranks(rank, count);
  if (ring_) {
    out->ring.layout = shard.layout;
    out->ring.layout.queries = joined_parts(shard.layout.queries, count);
    out->ring.layout.keys = joined_parts(shard.layout.keys, count);
    out->ring.rank = ring_->rank();
    LATHE_ASSIGN(out->of_ring, part_->executor().prepare(out->ring));
  }
  const size_t room = most * travellers_.size() + out->dsinks.sends.size();
  out->sends.resize(room), out->receives.resize(room);
  return std::unique_ptr<const ShardState>(std::move(out));
}

void AttentionHeads::lay_out(const Call& call, const Traveller& each, HeadsLaid* laid,
                             WorkspaceLayout* layout) const {
  const int64_t tokens = call.extents[token_letter(each.keys)];
  const int64_t all = laid->state->all(each.keys);
  const RowRoute& route =
      each.there ? laid->state->axis(each.keys).there : laid->state->axis(each.keys).back;
  const int64_t heads = heads_of(each, laid->share), width = each.width;
  const int64_t bytes = each.bytes;
  const int64_t groups = group_->world() - (sums(each, laid->share) ? 0 : 1);
  HeadsSpot& spot = laid->spots[each.tensor];
  spot.message = layout->add({groups, tokens, laid->batch, heads, width, bytes});
  spot.whole = layout->add({all, laid->batch, heads, width, bytes});
  const DeviceTable& staged = each.there ? route.receive_rows : route.send_rows;
  if (staged.data() != nullptr) {
    const int64_t rows = each.there ? route.moves.received() : route.moves.sent();
    spot.staged = layout->add({rows, laid->batch, heads, width, bytes});
  }
  if (each.rows) spot.dense = layout->add({all, laid->batch, heads, bytes});
}

Result<HeadsLaid> AttentionHeads::lay_out(const Call& call) const {
  HeadsLaid laid;
  LATHE_ASSIGN(laid.state, shard_state_of<HeadsShardState>(call));
  LATHE_ASSIGN(laid.share,
               head_share(call.extents[Letter::H], call.extents[Letter::HK], group_->world()));
  laid.batch = packed() ? 1 : call.extents[Letter::B];
  WorkspaceLayout layout;
  for (const Traveller& each : travellers_) lay_out(call, each, &laid, &layout);
  if (request_.alibi_rows) {
    laid.slopes =
        layout.add({call.extents[packed() ? Letter::N : Letter::B], laid.share.q_heads, 4});
  }
  LATHE_ASSIGN(const size_t inner, part_->executor().workspace_bytes(inner_call(call, laid)));
  laid.inner = layout.add({static_cast<int64_t>(inner)}, &laid.inner_bytes);
  laid.total = layout.total();
  LATHE_TRY(layout.status());
  return laid;
}

// The whole sequences of this rank's heads.
Call AttentionHeads::inner_call(const Call& call, const HeadsLaid& laid) const {
  Call inner;
  inner.stream = call.stream;
  inner.workspace = call.workspace + laid.inner;
  inner.workspace_bytes = static_cast<size_t>(laid.inner_bytes);
  inner.extents = call.extents;
  for (const int i : declared_) inner.tensors[i] = call.tensors[i];
  if (ring_) {
    inner.shard = &laid.state->ring;
    inner.shard_state = laid.state->of_ring.get();
  }
  const int64_t batch = laid.batch;
  for (const Traveller& each : travellers_) {
    const int64_t all = laid.state->all(each.keys);
    const int64_t heads = heads_of(each, laid.share), width = each.width;
    const HeadsSpot& spot = laid.spots[each.tensor];
    char* data = call.workspace + (each.rows ? spot.dense : spot.whole);
    if (each.rows && packed()) part_->put(&inner, each.tensor, data, {heads, all});
    if (each.rows && !packed()) part_->put(&inner, each.tensor, data, {batch, heads, all});
    if (!each.rows && packed()) part_->put(&inner, each.tensor, data, {all, heads, width});
    if (!each.rows && !packed()) {
      part_->put(&inner, each.tensor, data, {batch, all, heads, width},
                 {heads * width, batch * heads * width, width, 1});
    }
  }
  const int64_t first = group_->rank() * laid.share.q_heads;
  for (const int tensor : {att::sinks, att::dsinks, att::alibi_slopes}) {
    char*& data = inner.tensors[tensor].data;
    if (data != nullptr) data += first * 4;
  }
  if (request_.alibi_rows) inner.tensors[att::alibi_slopes].data = call.workspace + laid.slopes;
  return inner;
}

Result<size_t> AttentionHeads::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const HeadsLaid laid, lay_out(call));
  return static_cast<size_t>(laid.total);
}

Result<HeadShare> head_share(int64_t heads, int64_t kv_heads, int world) {
  HeadShare out;
  const bool whole = kv_heads % world == 0;
  const bool repeated = kv_heads > 0 && world % kv_heads == 0;
  const bool fits =
      (heads == kUnknown || heads % world == 0) && (kv_heads == kUnknown || whole || repeated);
  if (!fits || heads == kUnknown || kv_heads == kUnknown) {
    return invalid(text("exchanged heads: q has H = ", heads, " and k has HK = ", kv_heads,
                        ", the group has ", world,
                        " ranks; allowed are H that are multiples of that, with HK that are "
                        "multiples or divide it"));
  }
  out.q_heads = heads / world;
  out.kv_heads = whole ? kv_heads / world : 1;
  out.repeat = whole ? 1 : world / kv_heads;
  return out;
}

Result<std::unique_ptr<Executor>> make_attention_heads(const lathe_problem& problem,
                                                       const AttentionRequest& request,
                                                       const DeviceFacts& facts, Group* group) {
  auto executor = std::make_unique<AttentionHeads>(problem, request, group);
  LATHE_TRY(executor->split());
  LATHE_TRY(executor->make_part(problem.group_flags, facts));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace lathe
