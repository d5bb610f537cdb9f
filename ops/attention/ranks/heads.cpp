// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by exchanged heads: what travels and where it lies.
// After DeepSpeed Ulysses (arXiv 2309.14509), for any balance: whole sequences are put together in
// the order of their positions, so the call in the middle knows nothing of ranks.
#include <algorithm>
#include <cstdlib>

#include "codegen/base/invalid.h"
#include "ops/attention/ranks/heads_work.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

namespace att = attention;

}  // namespace

AttentionHeads::AttentionHeads(const lathe_problem& problem, const AttentionRequest& request,
                               Group* group)
    : request_(request),
      group_(group),
      reduces_((problem.group_flags & LATHE_REDUCE_PARAMETER_GRADS) != 0) {
  for (int i = 0; i < att::count; ++i) {
    if (problem.has(i)) declared_.push_back(i);
  }
  const auto add = [&](int tensor, bool keys, bool rows) {
    if (problem.has(tensor)) travellers_.push_back({tensor, keys, rows, !problem.writes(tensor)});
  };
  add(att::q, false, false), add(att::k, true, false), add(att::v, true, false);
  add(att::dout, false, false), add(att::dlse, false, true);
  add(att::out, false, false), add(att::lse, false, true);
  add(att::dq, false, false), add(att::dk, true, false), add(att::dv, true, false);
}

Status AttentionHeads::split(const lathe_problem& problem) {
  const std::string value = problem.option("head_ranks");
  const int count = std::atoi(value.c_str()), world = group_->world(), rank = group_->rank();
  if (count == 0 || count == world) return {};
  if (count > world || world % count != 0) {
    return invalid(text("option head_ranks is ", value, ", but the group has ", world,
                        " ranks; allowed are 0 and what divides that"));
  }
  if (!group_->connected()) {
    of_ring_.group = Group::unconnected(world / count, rank / count);
    of_heads_ = Group::unconnected(count, rank % count);
    group_ = of_heads_.get();
    return {};
  }
  LATHE_ASSIGN(of_ring_.group, Group::split(*group_, rank % count, rank));
  LATHE_ASSIGN(of_heads_, Group::split(*group_, rank / count, rank));
  group_ = of_heads_.get();
  return {};
}

Status AttentionHeads::make_part(const lathe_problem& problem, const Extents& promised,
                                 const DeviceFacts& facts) {
  LATHE_ASSIGN(const HeadShare share,
               head_share(promised[Letter::H], promised[Letter::HK], group_->world()));
  LATHE_ASSIGN(part_, Part::make("flash_attention", facts, [&](lathe_problem& inner) -> Status {
                 inner.tensors = problem.tensors;
                 inner.options = problem.options;
                 inner.snippets = problem.snippets;
                 inner.first_head = group_->rank() * share.q_heads;
                 if (of_ring_.group) {
                   inner.group = &of_ring_;
                   inner.group_flags = problem.group_flags & ~LATHE_EXCHANGE_HEADS;
                 }
                 for (Declared& declared : inner.tensors) {
                   for (int d = 0; d < declared.shape.rank; ++d) {
                     int64_t& extent = declared.extents[d];
                     const Letter letter = declared.shape.dims[d].letter;
                     if (letter == Letter::H) extent = share.q_heads;
                     if (letter == Letter::HK) extent = share.kv_heads;
                     if (letter == token_letter(false) || letter == token_letter(true)) {
                       extent = kUnknown;
                     }
                   }
                 }
                 return {};
               }));
  add(move_rows_spec(16), &kernels_.wide);
  add(move_rows_spec(4), &kernels_.narrow);
  const Dtype element = request_.problem.element;
  if (share.repeat > 1) add(sum_rows_spec(element, element, false), &sum_);
  add(part_.get());
  return {};
}

int64_t AttentionHeads::width_of(const HeadsTensor& each) const {
  if (each.rows) return 1;
  const bool values = each.tensor == att::v || each.tensor == att::dv || each.tensor == att::out ||
                      each.tensor == att::dout;
  return values ? request_.problem.value_dim : request_.problem.head_dim;
}

Result<std::unique_ptr<const Prepared>> AttentionHeads::prepare(const lathe_shard& shard) const {
  auto out = std::make_unique<HeadsPrepared>();
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
  for (int peer = 0; peer < group_->world(); ++peer) {
    if (peer == group_->rank()) continue;
    out->dsinks.sends.push_back({peer, group_->rank(), 1});
    out->dsinks.receives.push_back({peer, peer, 1});
  }
  if (of_ring_.group) {
    out->ring.layout = shard.layout;
    out->ring.layout.queries = joined_parts(shard.layout.queries, count);
    out->ring.layout.keys = joined_parts(shard.layout.keys, count);
    out->ring.rank = of_ring_.group->rank();
    LATHE_ASSIGN(out->of_ring, part_->work().prepare(out->ring));
  }
  const size_t room = most * travellers_.size() + out->dsinks.sends.size();
  out->sends.resize(room), out->receives.resize(room);
  return std::unique_ptr<const Prepared>(std::move(out));
}

Status AttentionHeads::lay_out(const Call& call, const HeadsTensor& each, HeadsLaid* laid,
                               Sections* sections) const {
  const int64_t tokens = call.extents[token_letter(each.keys)];
  const int64_t all = laid->prepared->all(each.keys);
  const RowRoute& route =
      each.there ? laid->prepared->axis(each.keys).there : laid->prepared->axis(each.keys).back;
  const int64_t heads = heads_of(each, laid->share), width = width_of(each);
  const int64_t bytes = element_bytes(each);
  const int64_t groups = group_->world() - (sums(each, laid->share) ? 0 : 1);
  HeadsSpot& spot = laid->spots[each.tensor];
  LATHE_TRY(sections->add({groups, tokens, laid->batch, heads, width, bytes}, &spot.message));
  LATHE_TRY(sections->add({all, laid->batch, heads, width, bytes}, &spot.whole));
  const DeviceTable& staged = each.there ? route.receive_rows : route.send_rows;
  if (staged.data() != nullptr) {
    const int64_t rows = each.there ? route.moves.received() : route.moves.sent();
    LATHE_TRY(sections->add({rows, laid->batch, heads, width, bytes}, &spot.staged));
  }
  if (!each.rows) return {};
  return sections->add({all, laid->batch, heads, bytes}, &spot.dense);
}

Result<HeadsLaid> AttentionHeads::lay_out(const Call& call) const {
  HeadsLaid laid;
  laid.prepared = static_cast<const HeadsPrepared*>(call.prepared);
  if (laid.prepared == nullptr) {
    return invalid("the shard was not prepared for this plan (lathe_shard_prepare)");
  }
  LATHE_ASSIGN(laid.share,
               head_share(call.extents[Letter::H], call.extents[Letter::HK], group_->world()));
  laid.batch = packed() ? 1 : call.extents[Letter::B];
  Sections sections;
  for (const HeadsTensor& each : travellers_) LATHE_TRY(lay_out(call, each, &laid, &sections));
  if (request_.alibi_rows) {
    LATHE_TRY(sections.add({call.extents[packed() ? Letter::N : Letter::B], laid.share.q_heads, 4},
                           &laid.slopes));
  }
  LATHE_ASSIGN(const size_t inner, part_->work().workspace_bytes(inner_call(call, laid)));
  LATHE_TRY(sections.add({static_cast<int64_t>(inner)}, &laid.inner, &laid.inner_bytes));
  laid.total = sections.total();
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
  if (of_ring_.group) {
    inner.shard = &laid.prepared->ring;
    inner.prepared = laid.prepared->of_ring.get();
  }
  const int64_t batch = laid.batch;
  for (const HeadsTensor& each : travellers_) {
    const int64_t all = laid.prepared->all(each.keys);
    const int64_t heads = heads_of(each, laid.share), width = width_of(each);
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
  return laid.total;
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

Result<std::unique_ptr<Work>> make_attention_heads(const lathe_problem& problem,
                                                   const AttentionRequest& request,
                                                   const Extents& promised,
                                                   const DeviceFacts& facts, Group* group) {
  auto work = std::make_unique<AttentionHeads>(problem, request, group);
  LATHE_TRY(work->split(problem));
  LATHE_TRY(work->make_part(problem, promised, facts));
  return std::unique_ptr<Work>(std::move(work));
}

}  // namespace lathe
