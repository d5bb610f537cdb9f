// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs one call of attention by exchanged heads: rows are packed, a hop brings whole sequences, the
// call in the middle runs, a hop brings the results home.
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/heads.h"

namespace lathe {
namespace {

namespace att = attention;

}  // namespace

// Holds one call: its workspace offsets, and the steps in their order.
class HeadsRun {
 public:
  HeadsRun(const AttentionHeads& executor, const Call& call, const HeadsOffsets& offsets)
      : executor_(executor), call_(call), offsets_(offsets), rank_(executor.group_->rank()) {}

  Status operator()() {
    LATHE_TRY(pack());
    LATHE_TRY(exchange(true));
    LATHE_TRY(unfold());
    if (dsinks() != nullptr) LATHE_TRY(clear_dsinks());
    LATHE_TRY(executor_.part_->executor().run(executor_.inner_call(call_, offsets_)));
    LATHE_TRY(fold());
    LATHE_TRY(exchange(false));
    return unpack();
  }

 private:
  using Side = RowCopier::Side;

  int64_t tokens(const Traveller& each) const {
    return call_.extents[executor_.token_dim(each.keys)];
  }
  int64_t repeat(const Traveller& each) const { return each.keys ? offsets_.share.repeat : 1; }
  // The near side is the messages: a share of the heads for, or from, each other rank.
  Journey journey(const Traveller& each) const {
    const HeadsRoutes& axis = offsets_.state->axis(each.keys);
    const HeadsTensorOffsets& o = offsets_.tensors[each.tensor];
    Journey out;
    out.each = &each, out.route = each.there ? &axis.there : &axis.back;
    out.batch = offsets_.batch, out.heads = executor_.heads_of(each, offsets_.share);
    out.arrived = offsets_.state->all(each.keys);
    out.near = at(o.message), out.far = at(o.whole), out.dense = at(o.dense);
    out.sent = out.received = at(o.staged);
    return out;
  }
  char* at(int64_t offset) const { return call_.workspace + offset; }
  char* dsinks() const { return call_.tensors[att::dsinks].data; }

  // Returns the caller's tensor. Heads from `skip_at` on are those `skip` behind.
  Side local(const Traveller& each, int64_t skip_at, int64_t skip) const {
    Side side = local_side(each, call_.tensors[each.tensor], executor_.packed());
    side.skip_at = skip_at, side.skip = skip;
    return side;
  }
  // The messages of all other ranks lie one after another.
  Side messages(const Journey& way) const {
    Side side = way.compact(way.near);
    side.heads = way.heads;
    side.group = tokens(*way.each) * offsets_.batch * way.heads * way.each->width;
    return side;
  }
  RowCopier mover() const { return RowCopier(executor_.kernels_, call_.stream); }
  int64_t others(const Journey& way) const { return (executor_.group_->world() - 1) * way.heads; }

  Status pack();
  Status unfold();
  Status fold();
  Status unpack();
  Status clear_dsinks() const;
  Status exchange(bool there) const;
  Status add_sums() const;

  const AttentionHeads& executor_;
  const Call& call_;
  const HeadsOffsets& offsets_;
  int rank_;
};

// Copies the shares of other ranks into messages, and the own share to its final offset.
Status HeadsRun::pack() {
  RowCopier copies = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (!each.there) continue;
    const Journey way = journey(each);
    const int64_t own = rank_ * way.heads;
    LATHE_TRY(copies.add(local(each, own, way.heads), messages(way), tokens(each), offsets_.batch,
                         others(way), repeat(each)));
    LATHE_TRY(copies.add(local(each, 0, own), way.compact(way.far, &way.route->own_to),
                         tokens(each), offsets_.batch, way.heads, repeat(each)));
  }
  if (executor_.request_.alibi_rows) {
    const Tensor& slopes = call_.tensors[att::alibi_slopes];
    const int64_t heads = offsets_.share.q_heads;
    Side from, to;
    from.view = {slopes.data + rank_ * heads * 4, 0, slopes.stride[0], 1};
    to.view = {at(offsets_.slopes), 0, heads, 1};
    LATHE_TRY(copies.add(from, to, 1, slopes.extent[0], heads));
  }
  return copies.launch();
}

// Copies the rows of messages of many runs to their offsets; then lays out per-row numbers as
// kernels take them.
Status HeadsRun::unfold() {
  RowCopier scattered = mover(), turned = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (each.there) LATHE_TRY(journey(each).enter(&scattered, &turned));
  }
  LATHE_TRY(scattered.launch());
  return turned.launch();
}

Status HeadsRun::fold() {
  RowCopier turned = mover(), gathered = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (!each.there) LATHE_TRY(journey(each).leave(&turned, &gathered));
  }
  LATHE_TRY(turned.launch());
  return gathered.launch();
}

// Copies the results out of the messages. The own share needs no message: the copy reads it where
// it was computed or, if shares are summed, behind the others'.
Status HeadsRun::unpack() {
  RowCopier copies = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (each.there) continue;
    const Journey way = journey(each);
    const Side own = way.compact(way.far, &way.route->own_from);
    if (executor_.sums(each, offsets_.share)) {
      const int64_t behind = others(way) * tokens(each) * offsets_.batch * each.width * each.bytes;
      LATHE_TRY(way.copy(&copies, own, way.compact(way.near + behind), tokens(each)));
      continue;
    }
    LATHE_TRY(copies.add(messages(way), local(each, rank_ * way.heads, way.heads), tokens(each),
                         offsets_.batch, others(way)));
    LATHE_TRY(way.copy(&copies, own, local(each, 0, rank_ * way.heads), tokens(each)));
  }
  LATHE_TRY(copies.launch());
  return offsets_.share.repeat > 1 ? add_sums() : Status();
}

// Adds the gradients of the ranks that share a key head, in the order of the ranks.
Status HeadsRun::add_sums() const {
  RowAdder adder(executor_.sum_, call_.stream);
  for (const Traveller& each : executor_.travellers_) {
    if (!executor_.sums(each, offsets_.share)) continue;
    const Side to = local(each, 0, 0);
    RowSum sum = {};
    sum.slots = journey(each).near;
    sum.to = to.view.data;
    sum.token = offsets_.batch * each.width, sum.batch = each.width;
    sum.group = tokens(each) * sum.token;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(tokens(each)), sum.batch_rows = static_cast<int>(offsets_.batch);
    sum.heads = static_cast<int>(call_.extents[Dim::HK]);
    sum.columns = static_cast<int>(each.width);
    sum.terms = static_cast<int>(repeat(each));
    sum.own_at = rank_, sum.own_group = executor_.group_->world() - 1;
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Sets dsinks of other ranks' heads to 0, this rank's term of the sum.
Status HeadsRun::clear_dsinks() const {
  return clear(*executor_.group_, dsinks(), call_.extents[Dim::H] * 4, call_.stream);
}

Status HeadsRun::exchange(bool there) const {
  std::array<RowTransfer, att::count> tensors;
  size_t count = 0;
  for (const Traveller& each : executor_.travellers_) {
    if (each.there != there) continue;
    tensors[count++] = journey(each).transfer();
  }
  if (!there && executor_.reduces_ && dsinks() != nullptr) {
    tensors[count++] = {&offsets_.state->dsinks, dsinks(), dsinks(), offsets_.share.q_heads * 4};
  }
  const Hop hop = hop_of(std::span(tensors).first(count), there ? "heads" : "heads' results",
                         offsets_.state->sends, offsets_.state->receives);
  return Exchange(*executor_.group_, call_.stream).run(hop);
}

Status AttentionHeads::launch(const Call& call, const HeadsOffsets& offsets) const {
  return HeadsRun(*this, call, offsets)();
}

// Estimates the call in the middle, and the rows that are packed before a hop and unpacked behind
// it.
Result<Estimate> AttentionHeads::estimate_plan(const Call& call,
                                               const HeadsOffsets& offsets) const {
  LATHE_ASSIGN(Estimate out, part_->executor().estimate(inner_call(call, offsets)));
  for (const Traveller& each : travellers_) {
    const int64_t tokens = call.extents[token_dim(each.keys)];
    const int64_t heads = heads_of(each, offsets.share) * group_->world();
    out.cost.bytes +=
        2 * static_cast<uint64_t>(tokens * offsets.batch * heads * each.width * each.bytes);
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
