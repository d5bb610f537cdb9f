// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs attention by exchanged heads: rows are packed, a hop brings whole sequences, the call in the
// middle runs, a hop brings the results home.
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/heads.h"

namespace lathe {

namespace att = attention;

HeadsRun::HeadsRun(const HeadsAttention& program, const Call& call)
    : TwoHopRun(*program.group, program.row_kernels, program.tensors,
                static_cast<const HeadsShardState&>(*call.shard_state),
                program.request.problem.packed, {"heads", "heads' results"}, call),
      program_(program),
      state_(static_cast<const HeadsShardState&>(*call.shard_state)),
      share_(*head_share(call.extents[Dim::H], call.extents[Dim::HK], program.shares)),
      own_(program.own()) {}

void HeadsRun::lay_out(const HopTensor& each) {
  const HeadsShardState::Axis& axis = each.keys ? state_.keys : state_.queries;
  const RowRoute& route = each.is_input ? axis.out : axis.home;
  TensorHop& hop = hops_[each.tensor];
  hop.tensor = &each, hop.route = &route;
  hop.batch = packed_ ? 1 : call_.extents[Dim::B];
  hop.heads = each.keys ? share_.kv_heads : share_.q_heads;
  hop.home_tokens =
      call_.extents[each.keys ? (packed_ ? Dim::Tk : Dim::Sk) : (packed_ ? Dim::Tq : Dim::Sq)];
  hop.away_tokens = axis.all;
  hop.parts = own_.size();
  hop.home = add_rows(hop, hop.home_tokens, shares());
  hop.away = add_rows(hop, hop.away_tokens, hop.parts);
  const DeviceTable& staged = each.is_input ? route.receive_rows : route.send_rows;
  if (staged.data() != nullptr) {
    hop.sent = hop.received =
        add_rows(hop, each.is_input ? route.copies.received() : route.copies.sent());
  }
  if (each.per_row) hop.dense = add_rows(hop, hop.away_tokens, hop.parts);
}

Status HeadsRun::lay_out() {
  for (const HopTensor& each : tensors_) lay_out(each);
  if (program_.request.alibi_rows) {
    const int64_t sequences = call_.extents[packed_ ? Dim::N : Dim::B];
    slopes_ = add_section({own_.size(), sequences, share_.q_heads, 4});
  }
  if (program_.reduces && dsinks() != nullptr) {
    dsinks_transfer_ = {&state_.dsinks, dsinks(), dsinks(), share_.q_heads * 4};
  }
  for (int64_t i = 0; i < own_.size(); ++i) {
    LATHE_TRY(reserve(*program_.step(i), inner_call(i)));
  }
  return lay_out_steps();
}

Call HeadsRun::inner_call(int64_t i) const {
  Call inner = step_call();
  inner.extents = call_.extents;
  for (const int tensor : program_.declared_tensors) inner.tensors[tensor] = call_.tensors[tensor];
  if (program_.ring) {
    inner.shard = &state_.ring;
    inner.shard_state = state_.of_ring.get();
  }
  for (const HopTensor& each : tensors_) {
    const TensorHop& hop = hops_[each.tensor];
    const int64_t batch = hop.batch, all = hop.away_tokens, heads = hop.heads, width = each.width;
    const auto put = [&](std::initializer_list<int64_t> extents,
                         std::initializer_list<int64_t> strides = {}) {
      char* const data = each.per_row ? hop.dense_part(i) : hop.away_part(i);
      program_.step(i).put(&inner, each.tensor, data, extents, strides);
    };
    if (each.per_row && packed_) put({heads, all});
    if (each.per_row && !packed_) put({batch, heads, all});
    if (!each.per_row && packed_) put({all, heads, width});
    if (!each.per_row && !packed_) {
      put({batch, all, heads, width}, {heads * width, batch * heads * width, width, 1});
    }
  }
  for (const int tensor : {att::sinks, att::dsinks, att::alibi_slopes}) {
    char*& data = inner.tensors[tensor].data;
    if (data != nullptr) data += (own_.begin + i) * share_.q_heads * 4;
  }
  if (program_.request.alibi_rows) inner.tensors[att::alibi_slopes].data = slopes_of(i);
  return inner;
}

char* HeadsRun::slopes_of(int64_t i) const {
  return slopes_ + i * call_.extents[packed_ ? Dim::N : Dim::B] * share_.q_heads * 4;
}

HeadsRun::Side HeadsRun::local(const HopTensor& each, int64_t share) const {
  Side side = TwoHopRun::local(each);
  side.skip_at = 0, side.skip = share * hops_[each.tensor].heads;
  return side;
}

template <typename F>
Status HeadsRun::each_run_of_others(F f) const {
  if (own_.begin > 0) LATHE_TRY(f(0, own_.begin));
  return own_.end < shares() ? f(own_.end, shares()) : Status();
}

HeadsRun::Side HeadsRun::messages(const TensorHop& hop, int64_t share) const {
  Side side = hop.compact(hop.home + share * hop.bytes(hop.home_tokens));
  side.heads = hop.heads;
  side.group = hop.home_tokens * hop.batch * hop.heads * hop.tensor->width;
  return side;
}

// Copies the shares of other ranks into messages, and the own share to its final offset.
Status HeadsRun::pack_inputs() const {
  RowCopier copies = copier();
  for (const HopTensor& each : tensors_) {
    if (!each.is_input) continue;
    const TensorHop& hop = hops_[each.tensor];
    LATHE_TRY(each_run_of_others([&](int64_t first, int64_t last) {
      return copies.add(local(each, first), messages(hop, first), hop.home_tokens, hop.batch,
                        (last - first) * hop.heads, repeat(each));
    }));
    for (int64_t i = 0; i < own_.size(); ++i) {
      const Side to = hop.compact(hop.away_part(i), &hop.route->own_to);
      LATHE_TRY(copies.add(local(each, own_.begin + i), to, hop.home_tokens, hop.batch, hop.heads,
                           repeat(each)));
    }
  }
  if (program_.request.alibi_rows) {
    const Tensor& slopes = call_.tensors[att::alibi_slopes];
    const int64_t heads = share_.q_heads;
    for (int64_t i = 0; i < own_.size(); ++i) {
      Side from, to;
      from.view = {slopes.data + (own_.begin + i) * heads * 4, 0, slopes.stride[0], 1};
      to.view = {slopes_of(i), 0, heads, 1};
      LATHE_TRY(copies.add(from, to, 1, slopes.extent[0], heads));
    }
  }
  return copies.launch();
}

Status HeadsRun::compute() const {
  if (dsinks() != nullptr) {  // those of other ranks' heads are 0, this rank's term of the sum
    LATHE_TRY(clear(group_, dsinks(), call_.extents[Dim::H] * 4, call_.stream));
  }
  for (int64_t i = 0; i < own_.size(); ++i) LATHE_TRY(program_.step(i)->run(inner_call(i)));
  return {};
}

Status HeadsRun::pack_results() const {
  return copy_all(false, [](const TensorHop& hop, RowCopier* turned, RowCopier* packed) {
    return hop.pack(turned, packed);
  });
}

// Copies the results out of the messages. The own shares need no message: the copy reads them where
// they were computed or, if shares are summed, among the others'.
Status HeadsRun::unpack_results() const {
  RowCopier copies = copier();
  for (const HopTensor& each : tensors_) {
    if (each.is_input) continue;
    const TensorHop& hop = hops_[each.tensor];
    for (int64_t i = 0; i < own_.size(); ++i) {
      const int64_t share = own_.begin + i;
      const Side own = hop.compact(hop.away_part(i), &hop.route->own_from);
      const Side to = sums(each) ? messages(hop, share) : local(each, share);
      LATHE_TRY(hop.copy(&copies, own, to, hop.home_tokens));
    }
    if (sums(each)) continue;
    LATHE_TRY(each_run_of_others([&](int64_t first, int64_t last) {
      return copies.add(messages(hop, first), local(each, first), hop.home_tokens, hop.batch,
                        (last - first) * hop.heads);
    }));
  }
  LATHE_TRY(copies.launch());
  return share_.repeat > 1 ? add_sums() : Status();
}

// Adds the gradients of the shares that have a key head in common, in their order.
Status HeadsRun::add_sums() const {
  RowAdder adder(program_.sum, call_.stream);
  for (const HopTensor& each : tensors_) {
    if (!sums(each)) continue;
    const TensorHop& hop = hops_[each.tensor];
    const Side to = TwoHopRun::local(each);
    RowSum sum = {};
    sum.slots = hop.home;
    sum.to = to.view.data;
    sum.token = hop.batch * each.width, sum.batch = each.width;
    sum.group = hop.home_tokens * sum.token;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(hop.home_tokens), sum.batch_rows = static_cast<int>(hop.batch);
    sum.heads = static_cast<int>(call_.extents[Dim::HK]);
    sum.columns = static_cast<int>(each.width);
    sum.terms = static_cast<int>(repeat(each));
    sum.own_at = static_cast<int>(kMaxExtent);
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Estimates the call in the middle, and the rows that are packed before a hop and unpacked behind
// it.
Result<Estimate> HeadsRun::estimate() const {
  Estimate out;
  for (int64_t i = 0; i < own_.size(); ++i) {
    LATHE_ASSIGN(const Estimate one, program_.step(i)->estimate(inner_call(i)));
    out.add(one);
  }
  for (const HopTensor& each : tensors_) {
    const TensorHop& hop = hops_[each.tensor];
    out.cost.bytes += 2 * static_cast<uint64_t>(shares() * hop.bytes(hop.home_tokens));
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
