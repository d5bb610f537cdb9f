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
      share_(*head_share(call.extents[Dim::H], call.extents[Dim::HK], group_.world())),
      rank_(group_.rank()) {}

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
  hop.home = add_rows(hop, hop.home_tokens, group_.world() - (sums(each) ? 0 : 1));
  hop.away = add_rows(hop, hop.away_tokens);
  const DeviceTable& staged = each.is_input ? route.receive_rows : route.send_rows;
  if (staged.data() != nullptr) {
    hop.sent = hop.received =
        add_rows(hop, each.is_input ? route.copies.received() : route.copies.sent());
  }
  if (each.per_row) hop.dense = add_rows(hop, hop.away_tokens);
}

Status HeadsRun::lay_out() {
  for (const HopTensor& each : tensors_) lay_out(each);
  if (program_.request.alibi_rows) {
    slopes_ = add_section({call_.extents[packed_ ? Dim::N : Dim::B], share_.q_heads, 4});
  }
  if (program_.reduces && dsinks() != nullptr) {
    dsinks_transfer_ = {&state_.dsinks, dsinks(), dsinks(), share_.q_heads * 4};
  }
  LATHE_TRY(reserve(*program_.step, inner_call()));
  return lay_out_steps();
}

// Returns the call on the whole sequences of this rank's heads.
Call HeadsRun::inner_call() const {
  Call inner = step_call();
  inner.extents = call_.extents;
  for (const int i : program_.declared_tensors) inner.tensors[i] = call_.tensors[i];
  if (program_.ring) {
    inner.shard = &state_.ring;
    inner.shard_state = state_.of_ring.get();
  }
  for (const HopTensor& each : tensors_) {
    const TensorHop& hop = hops_[each.tensor];
    const int64_t batch = hop.batch, all = hop.away_tokens, heads = hop.heads, width = each.width;
    const auto put = [&](std::initializer_list<int64_t> extents,
                         std::initializer_list<int64_t> strides = {}) {
      char* const data = each.per_row ? hop.dense : hop.away;
      program_.step.put(&inner, each.tensor, data, extents, strides);
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
    if (data != nullptr) data += rank_ * share_.q_heads * 4;
  }
  if (program_.request.alibi_rows) inner.tensors[att::alibi_slopes].data = slopes_;
  return inner;
}

HeadsRun::Side HeadsRun::local(const HopTensor& each, int64_t skip_at, int64_t skip) const {
  Side side = TwoHopRun::local(each);
  side.skip_at = skip_at, side.skip = skip;
  return side;
}

HeadsRun::Side HeadsRun::messages(const TensorHop& hop) const {
  Side side = hop.compact(hop.home);
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
    const int64_t own = rank_ * hop.heads;
    LATHE_TRY(copies.add(local(each, own, hop.heads), messages(hop), hop.home_tokens, hop.batch,
                         others(hop), repeat(each)));
    LATHE_TRY(copies.add(local(each, 0, own), hop.compact(hop.away, &hop.route->own_to),
                         hop.home_tokens, hop.batch, hop.heads, repeat(each)));
  }
  if (program_.request.alibi_rows) {
    const Tensor& slopes = call_.tensors[att::alibi_slopes];
    const int64_t heads = share_.q_heads;
    Side from, to;
    from.view = {slopes.data + rank_ * heads * 4, 0, slopes.stride[0], 1};
    to.view = {slopes_, 0, heads, 1};
    LATHE_TRY(copies.add(from, to, 1, slopes.extent[0], heads));
  }
  return copies.launch();
}

Status HeadsRun::compute() const {
  if (dsinks() != nullptr) {  // those of other ranks' heads are 0, this rank's term of the sum
    LATHE_TRY(clear(group_, dsinks(), call_.extents[Dim::H] * 4, call_.stream));
  }
  return program_.step->run(inner_call());
}

Status HeadsRun::pack_results() const {
  return copy_all(false, [](const TensorHop& hop, RowCopier* turned, RowCopier* packed) {
    return hop.pack(turned, packed);
  });
}

// Copies the results out of the messages. The own share needs no message: the copy reads it where
// it was computed or, if shares are summed, behind the others'.
Status HeadsRun::unpack_results() const {
  RowCopier copies = copier();
  for (const HopTensor& each : tensors_) {
    if (each.is_input) continue;
    const TensorHop& hop = hops_[each.tensor];
    const Side own = hop.compact(hop.away, &hop.route->own_from);
    if (sums(each)) {
      char* const behind = hop.home + (group_.world() - 1) * hop.bytes(hop.home_tokens);
      LATHE_TRY(hop.copy(&copies, own, hop.compact(behind), hop.home_tokens));
      continue;
    }
    LATHE_TRY(copies.add(messages(hop), local(each, rank_ * hop.heads, hop.heads), hop.home_tokens,
                         hop.batch, others(hop)));
    LATHE_TRY(hop.copy(&copies, own, local(each, 0, rank_ * hop.heads), hop.home_tokens));
  }
  LATHE_TRY(copies.launch());
  return share_.repeat > 1 ? add_sums() : Status();
}

// Adds the gradients of the ranks that share a key head, in the order of the ranks.
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
    sum.own_at = rank_, sum.own_group = group_.world() - 1;
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Estimates the call in the middle, and the rows that are packed before a hop and unpacked behind
// it.
Result<Estimate> HeadsRun::estimate() const {
  LATHE_ASSIGN(Estimate out, program_.step->estimate(inner_call()));
  for (const HopTensor& each : tensors_) {
    const TensorHop& hop = hops_[each.tensor];
    out.cost.bytes += 2 * static_cast<uint64_t>(group_.world() * hop.bytes(hop.home_tokens));
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
