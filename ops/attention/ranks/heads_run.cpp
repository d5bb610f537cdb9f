// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One call of attention by exchanged heads: rows are packed, a hop brings whole sequences, the call
// in the middle runs, a hop brings the results home.
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/heads_executor.h"

namespace lathe {
namespace {

namespace att = attention;

}  // namespace

// One call: its workspace offsets, and the steps in their order.
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

  // Of one traveller.
  struct RowOffsets {
    const Traveller* each = nullptr;
    int64_t tokens = 0, all = 0, heads = 0, repeat = 1;
    const RowRoute* route = nullptr;
    const HeadsTensorOffsets* at = nullptr;
    int64_t row() const { return heads * each->width; }
  };
  RowOffsets offsets_of(const Traveller& each) const {
    const HeadsRoutes& axis = offsets_.state->axis(each.keys);
    return {&each,
            call_.extents[executor_.token_dim(each.keys)],
            offsets_.state->all(each.keys),
            executor_.heads_of(each, offsets_.share),
            each.keys ? offsets_.share.repeat : 1,
            each.there ? &axis.there : &axis.back,
            &offsets_.tensors[each.tensor]};
  }
  char* at(int64_t offset) const { return call_.workspace + offset; }
  char* dsinks() const { return call_.tensors[att::dsinks].data; }

  // The caller's tensor; heads from `skip_at` on are those `skip` behind.
  Side local(const Traveller& each, int64_t skip_at, int64_t skip) const {
    Side side = local_side(each, call_.tensors[each.tensor], executor_.packed());
    side.skip_at = skip_at, side.skip = skip;
    return side;
  }
  // Rows of all heads of the share, one token after another.
  Side compact(const RowOffsets& p, int64_t offset, const DeviceTable* index = nullptr) const {
    return compact_side(*p.each, at(offset), offsets_.batch, p.heads, index);
  }
  Side messages(const RowOffsets& p) const {
    Side side = compact(p, p.at->message);
    side.heads = p.heads;
    side.group = p.tokens * offsets_.batch * p.row();
    return side;
  }
  Side dense(const RowOffsets& p) const {
    return dense_side(*p.each, at(p.at->dense), p.heads, p.all);
  }
  RowCopier mover() const { return RowCopier(executor_.kernels_, call_.stream); }
  int64_t others(const RowOffsets& p) const { return (executor_.group_->world() - 1) * p.heads; }

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

// Shares of the other ranks into messages, the own one where it belongs.
Status HeadsRun::pack() {
  RowCopier copies = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (!each.there) continue;
    const RowOffsets p = offsets_of(each);
    const int64_t own = rank_ * p.heads;
    LATHE_TRY(copies.add(local(each, own, p.heads), messages(p), p.tokens, offsets_.batch,
                         others(p), p.repeat));
    LATHE_TRY(copies.add(local(each, 0, own), compact(p, p.at->whole, &p.route->own_to), p.tokens,
                         offsets_.batch, p.heads, p.repeat));
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

// What came in messages of many runs, to its places; then numbers of rows as kernels take them.
Status HeadsRun::unfold() {
  RowCopier scattered = mover(), turned = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (!each.there) continue;
    const RowOffsets p = offsets_of(each);
    if (p.route->receive_rows.data() != nullptr) {
      LATHE_TRY(scattered.add(compact(p, p.at->staged),
                              compact(p, p.at->whole, &p.route->receive_rows),
                              p.route->copies.received(), offsets_.batch, p.heads));
    }
    if (each.rows) {
      LATHE_TRY(turned.add(compact(p, p.at->whole), dense(p), p.all, offsets_.batch, p.heads));
    }
  }
  LATHE_TRY(scattered.launch());
  return turned.launch();
}

Status HeadsRun::fold() {
  RowCopier turned = mover(), gathered = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (each.there) continue;
    const RowOffsets p = offsets_of(each);
    if (each.rows) {
      LATHE_TRY(turned.add(dense(p), compact(p, p.at->whole), p.all, offsets_.batch, p.heads));
    }
    if (p.route->send_rows.data() != nullptr) {
      LATHE_TRY(gathered.add(compact(p, p.at->whole, &p.route->send_rows), compact(p, p.at->staged),
                             p.route->copies.sent(), offsets_.batch, p.heads));
    }
  }
  LATHE_TRY(turned.launch());
  return gathered.launch();
}

// The own share needs no message: it is read where it was computed, or, where shares are summed,
// offsets behind the others'.
Status HeadsRun::unpack() {
  RowCopier copies = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (each.there) continue;
    const RowOffsets p = offsets_of(each);
    const Side own = compact(p, p.at->whole, &p.route->own_from);
    if (executor_.sums(each, offsets_.share)) {
      const int64_t behind = others(p) * p.tokens * offsets_.batch * each.width * each.bytes;
      LATHE_TRY(
          copies.add(own, compact(p, p.at->message + behind), p.tokens, offsets_.batch, p.heads));
      continue;
    }
    LATHE_TRY(copies.add(messages(p), local(each, rank_ * p.heads, p.heads), p.tokens,
                         offsets_.batch, others(p)));
    LATHE_TRY(copies.add(own, local(each, 0, rank_ * p.heads), p.tokens, offsets_.batch, p.heads));
  }
  LATHE_TRY(copies.launch());
  return offsets_.share.repeat > 1 ? add_sums() : Status();
}

// What the ranks that share a key head found for it, in the order of the ranks.
Status HeadsRun::add_sums() const {
  RowAdder adder(executor_.sum_, call_.stream);
  for (const Traveller& each : executor_.travellers_) {
    if (!executor_.sums(each, offsets_.share)) continue;
    const RowOffsets p = offsets_of(each);
    const Side to = local(each, 0, 0);
    RowSum sum = {};
    sum.slots = at(p.at->message);
    sum.to = to.view.data;
    sum.token = offsets_.batch * each.width, sum.batch = each.width;
    sum.group = p.tokens * sum.token;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(p.tokens), sum.batch_rows = static_cast<int>(offsets_.batch);
    sum.heads = static_cast<int>(call_.extents[Dim::HK]);
    sum.columns = static_cast<int>(each.width);
    sum.terms = static_cast<int>(p.repeat);
    sum.own_at = rank_, sum.own_group = executor_.group_->world() - 1;
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Heads of other ranks: their part of the sum is 0.
Status HeadsRun::clear_dsinks() const {
  return clear(*executor_.group_, dsinks(), call_.extents[Dim::H] * 4, call_.stream);
}

Status HeadsRun::exchange(bool there) const {
  std::array<RowTransfer, att::count> tensors;
  size_t count = 0;
  for (const Traveller& each : executor_.travellers_) {
    if (each.there != there) continue;
    const RowOffsets p = offsets_of(each);
    const bool staged = (there ? p.route->receive_rows : p.route->send_rows).data() != nullptr;
    char* message = at(p.at->message);
    char* far = at(staged ? p.at->staged : p.at->whole);
    tensors[count++] = {&p.route->copies, there ? message : far, there ? far : message,
                        offsets_.batch * p.row() * each.bytes};
  }
  if (!there && executor_.reduces_ && dsinks() != nullptr) {
    tensors[count++] = {&offsets_.state->dsinks, dsinks(), dsinks(), offsets_.share.q_heads * 4};
  }
  const Hop hop = hop_of(std::span(tensors).first(count), there ? "heads" : "heads' results",
                         offsets_.state->sends, offsets_.state->receives);
  return Exchange(*executor_.group_, call_.stream).run(hop);
}

Status AttentionHeads::run(const Call& call) const {
  LATHE_ASSIGN(const HeadsOffsets offsets, lay_out(call));
  LATHE_TRY(call.check_workspace(offsets.total));
  return HeadsRun(*this, call, offsets)();
}

// The call in the middle, and the rows that are packed before a hop and unpacked behind it.
Result<Estimate> AttentionHeads::estimate(const Call& call) const {
  LATHE_ASSIGN(const HeadsOffsets offsets, lay_out(call));
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
