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

// One call: its places, and the steps in their order.
class HeadsRun {
 public:
  HeadsRun(const AttentionHeads& executor, const Call& call, const HeadsLaid& laid)
      : executor_(executor), call_(call), laid_(laid), rank_(executor.group_->rank()) {}

  Status operator()() {
    LATHE_TRY(pack());
    LATHE_TRY(exchange(true));
    LATHE_TRY(unfold());
    if (dsinks() != nullptr) LATHE_TRY(clear_dsinks());
    LATHE_TRY(executor_.part_->executor().run(executor_.inner_call(call_, laid_)));
    LATHE_TRY(fold());
    LATHE_TRY(exchange(false));
    return unpack();
  }

 private:
  using Side = RowMover::Side;

  // Of one traveller.
  struct Place {
    const Traveller* each = nullptr;
    int64_t tokens = 0, all = 0, heads = 0, repeat = 1;
    const RowRoute* route = nullptr;
    const HeadsSpot* spot = nullptr;
    int64_t row() const { return heads * each->width; }
  };
  Place place(const Traveller& each) const {
    const HeadsRoutes& axis = laid_.state->axis(each.keys);
    return {&each,
            call_.extents[executor_.token_letter(each.keys)],
            laid_.state->all(each.keys),
            executor_.heads_of(each, laid_.share),
            each.keys ? laid_.share.repeat : 1,
            each.there ? &axis.there : &axis.back,
            &laid_.spots[each.tensor]};
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
  Side compact(const Place& p, int64_t offset, const DeviceTable* index = nullptr) const {
    return compact_side(*p.each, at(offset), laid_.batch, p.heads, index);
  }
  Side messages(const Place& p) const {
    Side side = compact(p, p.spot->message);
    side.heads = p.heads;
    side.group = p.tokens * laid_.batch * p.row();
    return side;
  }
  Side dense(const Place& p) const {
    return dense_side(*p.each, at(p.spot->dense), p.heads, p.all);
  }
  RowMover mover() const { return RowMover(executor_.kernels_, call_.stream); }
  int64_t others(const Place& p) const { return (executor_.group_->world() - 1) * p.heads; }

  Status pack();
  Status unfold();
  Status fold();
  Status unpack();
  Status clear_dsinks() const;
  Status exchange(bool there) const;
  Status add_sums() const;

  const AttentionHeads& executor_;
  const Call& call_;
  const HeadsLaid& laid_;
  int rank_;
};

// Shares of the other ranks into messages, the own one where it belongs.
Status HeadsRun::pack() {
  RowMover moves = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (!each.there) continue;
    const Place p = place(each);
    const int64_t own = rank_ * p.heads;
    LATHE_TRY(moves.add(local(each, own, p.heads), messages(p), p.tokens, laid_.batch, others(p),
                        p.repeat));
    LATHE_TRY(moves.add(local(each, 0, own), compact(p, p.spot->whole, &p.route->own_to), p.tokens,
                        laid_.batch, p.heads, p.repeat));
  }
  if (executor_.request_.alibi_rows) {
    const Tensor& slopes = call_.tensors[att::alibi_slopes];
    const int64_t heads = laid_.share.q_heads;
    Side from, to;
    from.view = {slopes.data + rank_ * heads * 4, 0, slopes.stride[0], 1};
    to.view = {at(laid_.slopes), 0, heads, 1};
    LATHE_TRY(moves.add(from, to, 1, slopes.extent[0], heads));
  }
  return moves.launch();
}

// What came in messages of many runs, to its places; then numbers of rows as kernels take them.
Status HeadsRun::unfold() {
  RowMover scattered = mover(), turned = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (!each.there) continue;
    const Place p = place(each);
    if (p.route->receive_rows.data() != nullptr) {
      LATHE_TRY(scattered.add(compact(p, p.spot->staged),
                              compact(p, p.spot->whole, &p.route->receive_rows),
                              p.route->moves.received(), laid_.batch, p.heads));
    }
    if (each.rows) {
      LATHE_TRY(turned.add(compact(p, p.spot->whole), dense(p), p.all, laid_.batch, p.heads));
    }
  }
  LATHE_TRY(scattered.launch());
  return turned.launch();
}

Status HeadsRun::fold() {
  RowMover turned = mover(), gathered = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (each.there) continue;
    const Place p = place(each);
    if (each.rows) {
      LATHE_TRY(turned.add(dense(p), compact(p, p.spot->whole), p.all, laid_.batch, p.heads));
    }
    if (p.route->send_rows.data() != nullptr) {
      LATHE_TRY(gathered.add(compact(p, p.spot->whole, &p.route->send_rows),
                             compact(p, p.spot->staged), p.route->moves.sent(), laid_.batch,
                             p.heads));
    }
  }
  LATHE_TRY(turned.launch());
  return gathered.launch();
}

// The own share needs no message: it is read where it was computed, or, where shares are summed,
// laid behind the others'.
Status HeadsRun::unpack() {
  RowMover moves = mover();
  for (const Traveller& each : executor_.travellers_) {
    if (each.there) continue;
    const Place p = place(each);
    const Side own = compact(p, p.spot->whole, &p.route->own_from);
    if (executor_.sums(each, laid_.share)) {
      const int64_t behind = others(p) * p.tokens * laid_.batch * each.width * each.bytes;
      LATHE_TRY(
          moves.add(own, compact(p, p.spot->message + behind), p.tokens, laid_.batch, p.heads));
      continue;
    }
    LATHE_TRY(moves.add(messages(p), local(each, rank_ * p.heads, p.heads), p.tokens, laid_.batch,
                        others(p)));
    LATHE_TRY(moves.add(own, local(each, 0, rank_ * p.heads), p.tokens, laid_.batch, p.heads));
  }
  LATHE_TRY(moves.launch());
  return laid_.share.repeat > 1 ? add_sums() : Status();
}

// What the ranks that share a key head found for it, in the order of the ranks.
Status HeadsRun::add_sums() const {
  RowAdder adder(executor_.sum_, call_.stream);
  for (const Traveller& each : executor_.travellers_) {
    if (!executor_.sums(each, laid_.share)) continue;
    const Place p = place(each);
    const Side to = local(each, 0, 0);
    RowSum sum = {};
    sum.slots = at(p.spot->message);
    sum.to = to.view.data;
    sum.token = laid_.batch * each.width, sum.batch = each.width;
    sum.group = p.tokens * sum.token;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(p.tokens), sum.batch_rows = static_cast<int>(laid_.batch);
    sum.heads = static_cast<int>(call_.extents[Letter::HK]);
    sum.columns = static_cast<int>(each.width);
    sum.terms = static_cast<int>(p.repeat);
    sum.own_at = rank_, sum.own_group = executor_.group_->world() - 1;
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Heads of other ranks: their part of the sum is 0.
Status HeadsRun::clear_dsinks() const {
  return clear(*executor_.group_, dsinks(), call_.extents[Letter::H] * 4, call_.stream);
}

Status HeadsRun::exchange(bool there) const {
  std::array<RowTransfer, att::count> tensors;
  size_t count = 0;
  for (const Traveller& each : executor_.travellers_) {
    if (each.there != there) continue;
    const Place p = place(each);
    const bool staged = (there ? p.route->receive_rows : p.route->send_rows).data() != nullptr;
    char* message = at(p.spot->message);
    char* far = at(staged ? p.spot->staged : p.spot->whole);
    tensors[count++] = {&p.route->moves, there ? message : far, there ? far : message,
                        laid_.batch * p.row() * each.bytes};
  }
  if (!there && executor_.reduces_ && dsinks() != nullptr) {
    tensors[count++] = {&laid_.state->dsinks, dsinks(), dsinks(), laid_.share.q_heads * 4};
  }
  const Hop hop = hop_of(std::span(tensors).first(count), there ? "heads" : "heads' results",
                         laid_.state->sends, laid_.state->receives);
  return Exchange(*executor_.group_, call_.stream).run(hop);
}

Status AttentionHeads::run(const Call& call) const {
  LATHE_ASSIGN(const HeadsLaid laid, lay_out(call));
  LATHE_TRY(call.check_workspace(laid.total));
  return HeadsRun(*this, call, laid)();
}

// The call in the middle, and the rows that are packed before a hop and unpacked behind it.
Result<Estimate> AttentionHeads::estimate(const Call& call) const {
  LATHE_ASSIGN(const HeadsLaid laid, lay_out(call));
  LATHE_ASSIGN(Estimate out, part_->executor().estimate(inner_call(call, laid)));
  for (const Traveller& each : travellers_) {
    const int64_t tokens = call.extents[token_letter(each.keys)];
    const int64_t heads = heads_of(each, laid.share) * group_->world();
    out.cost.bytes +=
        2 * static_cast<uint64_t>(tokens * laid.batch * heads * each.width * each.bytes);
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
