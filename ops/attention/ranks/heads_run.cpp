// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/heads.h"

namespace lathe {

namespace att = attention;

HeadsRun::HeadsRun(const AttentionHeads& executor, const Call& call)
    : TravelRun(*executor.group_, executor.kernels_, executor.travellers_,
                executor.request_.problem.packed, call),
      executor_(executor),
      state_(static_cast<const HeadsShardState&>(*call.shard_state)),
      share_(*head_share(call.extents[Dim::H], call.extents[Dim::HK], group_.world())),
      rank_(group_.rank()) {}

void HeadsRun::lay_out(const Traveller& each) {
  const HeadsShardState::Axis& axis = state_.axis(each.keys);
  const RowRoute& route = each.there ? axis.there : axis.back;
  Journey& way = ways_[each.tensor];
  way.each = &each, way.route = &route;
  way.batch = packed_ ? 1 : call_.extents[Dim::B];
  way.heads = each.keys ? share_.kv_heads : share_.q_heads;
  way.tokens =
      call_.extents[each.keys ? (packed_ ? Dim::Tk : Dim::Sk) : (packed_ ? Dim::Tq : Dim::Sq)];
  way.arrived = axis.all;
  way.near = rows(way, way.tokens, group_.world() - (sums(each) ? 0 : 1));
  way.far = rows(way, way.arrived);
  const DeviceTable& staged = each.there ? route.receive_rows : route.send_rows;
  if (staged.data() != nullptr) {
    way.sent = way.received = rows(way, each.there ? route.copies.received() : route.copies.sent());
  }
  if (each.rows) way.dense = rows(way, way.arrived);
}

Status HeadsRun::lay_out() {
  for (const Traveller& each : travellers_) lay_out(each);
  if (executor_.request_.alibi_rows) {
    slopes_ = section({call_.extents[packed_ ? Dim::N : Dim::B], share_.q_heads, 4});
  }
  LATHE_ASSIGN(const size_t inner, part().workspace_bytes(inner_call()));
  return lay_out_steps(inner);
}

// Returns the call on the whole sequences of this rank's heads.
Call HeadsRun::inner_call() const {
  Call inner = step_call();
  inner.extents = call_.extents;
  for (const int i : executor_.declared_) inner.tensors[i] = call_.tensors[i];
  if (executor_.ring_) {
    inner.shard = &state_.ring;
    inner.shard_state = state_.of_ring.get();
  }
  for (const Traveller& each : travellers_) {
    const Journey& way = ways_[each.tensor];
    const int64_t batch = way.batch, all = way.arrived, heads = way.heads, width = each.width;
    const auto put = [&](std::initializer_list<int64_t> extents,
                         std::initializer_list<int64_t> strides = {}) {
      executor_.part_->put(&inner, each.tensor, each.rows ? way.dense : way.far, extents, strides);
    };
    if (each.rows && packed_) put({heads, all});
    if (each.rows && !packed_) put({batch, heads, all});
    if (!each.rows && packed_) put({all, heads, width});
    if (!each.rows && !packed_) {
      put({batch, all, heads, width}, {heads * width, batch * heads * width, width, 1});
    }
  }
  for (const int tensor : {att::sinks, att::dsinks, att::alibi_slopes}) {
    char*& data = inner.tensors[tensor].data;
    if (data != nullptr) data += rank_ * share_.q_heads * 4;
  }
  if (executor_.request_.alibi_rows) inner.tensors[att::alibi_slopes].data = slopes_;
  return inner;
}

Status HeadsRun::operator()() {
  LATHE_TRY(pack());
  LATHE_TRY(exchange(true, "heads", state_));
  LATHE_TRY(enter_all(true));
  if (dsinks() != nullptr) {  // those of other ranks' heads are 0, this rank's term of the sum
    LATHE_TRY(clear(dsinks(), call_.extents[Dim::H] * 4));
  }
  LATHE_TRY(part().run(inner_call()));
  LATHE_TRY(copy_all(false, [](const Journey& way, RowCopier* turned, RowCopier* gathered) {
    return way.leave(turned, gathered);
  }));
  RowTransfer dsinks_of_ranks;
  if (executor_.reduces_ && dsinks() != nullptr) {
    dsinks_of_ranks = {&state_.shares, dsinks(), dsinks(), share_.q_heads * 4};
  }
  LATHE_TRY(exchange(false, "heads' results", state_, dsinks_of_ranks));
  LATHE_TRY(unpack());
  return share_.repeat > 1 ? add_sums() : Status();
}

// Copies the shares of other ranks into messages, and the own share to its final offset.
Status HeadsRun::pack() const {
  RowCopier copies = mover();
  for (const Traveller& each : travellers_) {
    if (!each.there) continue;
    const Journey& way = ways_[each.tensor];
    const int64_t own = rank_ * way.heads;
    LATHE_TRY(copies.add(local(each, own, way.heads), messages(way), way.tokens, way.batch,
                         others(way), repeat(each)));
    LATHE_TRY(copies.add(local(each, 0, own), way.compact(way.far, &way.route->own_to), way.tokens,
                         way.batch, way.heads, repeat(each)));
  }
  if (executor_.request_.alibi_rows) {
    const Tensor& slopes = call_.tensors[att::alibi_slopes];
    const int64_t heads = share_.q_heads;
    Side from, to;
    from.view = {slopes.data + rank_ * heads * 4, 0, slopes.stride[0], 1};
    to.view = {slopes_, 0, heads, 1};
    LATHE_TRY(copies.add(from, to, 1, slopes.extent[0], heads));
  }
  return copies.launch();
}

// Copies the results out of the messages. The own share needs no message: the copy reads it where
// it was computed or, if shares are summed, behind the others'.
Status HeadsRun::unpack() const {
  RowCopier copies = mover();
  for (const Traveller& each : travellers_) {
    if (each.there) continue;
    const Journey& way = ways_[each.tensor];
    const Side own = way.compact(way.far, &way.route->own_from);
    if (sums(each)) {
      const int64_t behind = others(way) * way.tokens * way.batch * each.width * each.bytes;
      LATHE_TRY(way.copy(&copies, own, way.compact(way.near + behind), way.tokens));
      continue;
    }
    LATHE_TRY(copies.add(messages(way), local(each, rank_ * way.heads, way.heads), way.tokens,
                         way.batch, others(way)));
    LATHE_TRY(way.copy(&copies, own, local(each, 0, rank_ * way.heads), way.tokens));
  }
  return copies.launch();
}

// Adds the gradients of the ranks that share a key head, in the order of the ranks.
Status HeadsRun::add_sums() const {
  RowAdder adder(executor_.sum_, call_.stream);
  for (const Traveller& each : travellers_) {
    if (!sums(each)) continue;
    const Journey& way = ways_[each.tensor];
    const Side to = TravelRun::local(each);
    RowSum sum = {};
    sum.slots = way.near;
    sum.to = to.view.data;
    sum.token = way.batch * each.width, sum.batch = each.width;
    sum.group = way.tokens * sum.token;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(way.tokens), sum.batch_rows = static_cast<int>(way.batch);
    sum.heads = static_cast<int>(call_.extents[Dim::HK]);
    sum.columns = static_cast<int>(each.width);
    sum.terms = static_cast<int>(repeat(each));
    sum.own_at = rank_, sum.own_group = group_.world() - 1;
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Estimates the call in the middle, and the rows that are packed before a hop and unpacked behind
// it.
Result<Estimate> HeadsRun::estimate() const {
  LATHE_ASSIGN(Estimate out, part().estimate(inner_call()));
  for (const Traveller& each : travellers_) {
    const Journey& way = ways_[each.tensor];
    out.cost.bytes += 2 * static_cast<uint64_t>(way.tokens * way.batch * way.heads *
                                                group_.world() * each.width * each.bytes);
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
