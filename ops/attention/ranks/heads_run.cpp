// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One call of attention by exchanged heads: rows are packed, a hop brings whole sequences, the call
// in the middle runs, a hop brings the results home.
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/heads_work.h"

namespace lathe {
namespace {

namespace att = attention;

}  // namespace

// One call: its places, and the steps in their order.
class HeadsRun {
 public:
  HeadsRun(const AttentionHeads& work, const Call& call, const HeadsLaid& laid)
      : work_(work), call_(call), laid_(laid), rank_(work.group_->rank()) {}

  Status operator()() {
    LATHE_TRY(pack());
    LATHE_TRY(exchange(true));
    LATHE_TRY(unfold());
    if (dsinks() != nullptr) LATHE_TRY(clear_dsinks());
    LATHE_TRY(work_.part_->work().run(work_.inner_call(call_, laid_)));
    LATHE_TRY(fold());
    LATHE_TRY(exchange(false));
    return unpack();
  }

 private:
  using Side = RowMover::Side;

  // Of one traveller.
  struct Place {
    int64_t tokens = 0, all = 0, heads = 0, width = 0, bytes = 0, repeat = 1;
    const RowRoute* route = nullptr;
    const HeadsSpot* spot = nullptr;
    int64_t row() const { return heads * width; }
  };
  Place place(const HeadsTensor& each) const {
    const HeadsRoutes& axis = laid_.prepared->axis(each.keys);
    return {call_.extents[work_.token_letter(each.keys)],
            laid_.prepared->all(each.keys),
            work_.heads_of(each, laid_.share),
            work_.width_of(each),
            work_.element_bytes(each),
            each.keys ? laid_.share.repeat : 1,
            each.there ? &axis.there : &axis.back,
            &laid_.spots[each.tensor]};
  }
  char* at(int64_t offset) const { return call_.workspace + offset; }
  char* dsinks() const { return call_.tensors[att::dsinks].data; }

  // The caller's tensor; heads from `skip_at` on are those `skip` behind.
  Side local(const HeadsTensor& each, const Place& p, int64_t skip_at, int64_t skip) const {
    const Tensor& tensor = call_.tensors[each.tensor];
    const auto& s = tensor.stride;
    Side side;
    side.view = {tensor.data, 0, 0, 0, p.width, p.bytes};
    RowView& view = side.view;
    if (work_.packed()) {
      view.token = s[each.rows ? 1 : 0], view.head = s[each.rows ? 0 : 1];
    } else {
      view.batch = s[0], view.token = s[each.rows ? 2 : 1], view.head = s[each.rows ? 1 : 2];
    }
    side.skip_at = skip_at, side.skip = skip;
    return side;
  }
  // Rows of all heads of the share, one token after another.
  Side compact(int64_t offset, const Place& p, const DeviceTable* index = nullptr) const {
    Side side;
    side.view = {at(offset), laid_.batch * p.row(), p.row(), p.width, p.width, p.bytes};
    side.index = index ? index->data() : nullptr;
    return side;
  }
  Side messages(const Place& p) const {
    Side side = compact(p.spot->message, p);
    side.heads = p.heads;
    side.group = p.tokens * laid_.batch * p.row();
    return side;
  }
  Side dense(const Place& p) const {
    Side side;
    side.view = {at(p.spot->dense), 1, p.heads * p.all, p.all, 1, p.bytes};
    return side;
  }
  RowMover mover() const { return RowMover(work_.kernels_, call_.stream); }
  int64_t others(const Place& p) const { return (work_.group_->world() - 1) * p.heads; }

  Status pack();
  Status unfold();
  Status fold();
  Status unpack();
  Status clear_dsinks() const;
  Status exchange(bool there) const;
  Status add_sums() const;

  const AttentionHeads& work_;
  const Call& call_;
  const HeadsLaid& laid_;
  int rank_;
};

// Shares of the other ranks into messages, the own one where it belongs.
Status HeadsRun::pack() {
  RowMover moves = mover();
  for (const HeadsTensor& each : work_.travellers_) {
    if (!each.there) continue;
    const Place p = place(each);
    const int64_t own = rank_ * p.heads;
    LATHE_TRY(moves.add(local(each, p, own, p.heads), messages(p), p.tokens, laid_.batch, others(p),
                        p.repeat));
    LATHE_TRY(moves.add(local(each, p, 0, own), compact(p.spot->whole, p, &p.route->own_to),
                        p.tokens, laid_.batch, p.heads, p.repeat));
  }
  if (work_.request_.alibi_rows) {
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
  for (const HeadsTensor& each : work_.travellers_) {
    if (!each.there) continue;
    const Place p = place(each);
    if (p.route->receive_rows.data() != nullptr) {
      LATHE_TRY(scattered.add(compact(p.spot->staged, p),
                              compact(p.spot->whole, p, &p.route->receive_rows),
                              p.route->moves.received(), laid_.batch, p.heads));
    }
    if (each.rows) {
      LATHE_TRY(turned.add(compact(p.spot->whole, p), dense(p), p.all, laid_.batch, p.heads));
    }
  }
  LATHE_TRY(scattered.launch());
  return turned.launch();
}

Status HeadsRun::fold() {
  RowMover turned = mover(), gathered = mover();
  for (const HeadsTensor& each : work_.travellers_) {
    if (each.there) continue;
    const Place p = place(each);
    if (each.rows) {
      LATHE_TRY(turned.add(dense(p), compact(p.spot->whole, p), p.all, laid_.batch, p.heads));
    }
    if (p.route->send_rows.data() != nullptr) {
      LATHE_TRY(gathered.add(compact(p.spot->whole, p, &p.route->send_rows),
                             compact(p.spot->staged, p), p.route->moves.sent(), laid_.batch,
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
  for (const HeadsTensor& each : work_.travellers_) {
    if (each.there) continue;
    const Place p = place(each);
    const Side own = compact(p.spot->whole, p, &p.route->own_from);
    if (work_.sums(each, laid_.share)) {
      const int64_t behind = others(p) * p.tokens * laid_.batch * p.width * p.bytes;
      LATHE_TRY(
          moves.add(own, compact(p.spot->message + behind, p), p.tokens, laid_.batch, p.heads));
      continue;
    }
    LATHE_TRY(moves.add(messages(p), local(each, p, rank_ * p.heads, p.heads), p.tokens,
                        laid_.batch, others(p)));
    LATHE_TRY(moves.add(own, local(each, p, 0, rank_ * p.heads), p.tokens, laid_.batch, p.heads));
  }
  LATHE_TRY(moves.launch());
  return laid_.share.repeat > 1 ? add_sums() : Status();
}

// What the ranks that share a key head found for it, in the order of the ranks.
Status HeadsRun::add_sums() const {
  RowAdder adder(*work_.sum_, call_.stream);
  for (const HeadsTensor& each : work_.travellers_) {
    if (!work_.sums(each, laid_.share)) continue;
    const Place p = place(each);
    const Side to = local(each, p, 0, 0);
    RowSum sum = {};
    sum.slots = at(p.spot->message);
    sum.to = to.view.data;
    sum.token = laid_.batch * p.width, sum.batch = p.width;
    sum.group = p.tokens * sum.token;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(p.tokens), sum.batch_rows = static_cast<int>(laid_.batch);
    sum.heads = static_cast<int>(call_.extents[Letter::HK]);
    sum.columns = static_cast<int>(p.width);
    sum.terms = static_cast<int>(p.repeat);
    sum.own_at = rank_, sum.own_group = work_.group_->world() - 1;
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Heads of other ranks: their part of the sum is 0.
Status HeadsRun::clear_dsinks() const {
  const Driver& driver = work_.group_->device().driver();
  const auto bytes = static_cast<size_t>(call_.extents[Letter::H] * 4);
  return check(
      driver,
      driver.cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(dsinks()), 0, bytes, call_.stream),
      "cuMemsetD8Async");
}

Status HeadsRun::exchange(bool there) const {
  std::array<RowTransfer, att::count> tensors;
  size_t count = 0;
  for (const HeadsTensor& each : work_.travellers_) {
    if (each.there != there) continue;
    const Place p = place(each);
    const bool staged = (there ? p.route->receive_rows : p.route->send_rows).data() != nullptr;
    char* message = at(p.spot->message);
    char* far = at(staged ? p.spot->staged : p.spot->whole);
    tensors[count++] = {&p.route->moves, there ? message : far, there ? far : message,
                        laid_.batch * p.row() * p.bytes};
  }
  if (!there && work_.reduces_ && dsinks() != nullptr) {
    tensors[count++] = {&laid_.prepared->dsinks, dsinks(), dsinks(), laid_.share.q_heads * 4};
  }
  const Hop hop = hop_of(std::span(tensors).first(count), there ? "heads" : "heads' results",
                         laid_.prepared->sends, laid_.prepared->receives);
  if (is_empty(hop)) return {};
  LATHE_TRY(post_after(*work_.group_, hop, call_.stream));
  return work_.group_->stream_after_exchange(call_.stream);
}

Status AttentionHeads::run(const Call& call) const {
  LATHE_ASSIGN(const HeadsLaid laid, lay_out(call));
  LATHE_TRY(call.check_workspace(static_cast<int64_t>(laid.total)));
  return HeadsRun(*this, call, laid)();
}

// The call in the middle, and the rows that are packed before a hop and unpacked behind it.
Result<Estimate> AttentionHeads::estimate(const Call& call) const {
  LATHE_ASSIGN(const HeadsLaid laid, lay_out(call));
  LATHE_ASSIGN(Estimate out, part_->work().estimate(inner_call(call, laid)));
  for (const HeadsTensor& each : travellers_) {
    const int64_t tokens = call.extents[token_letter(each.keys)];
    const int64_t heads = heads_of(each, laid.share) * group_->world();
    out.cost.bytes += 2 * static_cast<uint64_t>(tokens * laid.batch * heads * width_of(each) *
                                                element_bytes(each));
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
