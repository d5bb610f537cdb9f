// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs attention by dispatch: rows go out in one hop, a step computes over whole contexts, results
// go home in one hop.
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/dispatch.h"

namespace lathe {

namespace att = attention;

DispatchRun::DispatchRun(const DispatchAttention& program, const Call& call)
    : TwoHopRun(*program.group, program.row_kernels, program.tensors,
                static_cast<const DispatchShardState&>(*call.shard_state),
                program.request.problem.packed, {"dispatch", "dispatch's results"}, call),
      program_(program),
      state_(static_cast<const DispatchShardState&>(*call.shard_state)),
      rank_(call.shard->rank),
      batch_(packed_ ? 1 : call.extents[Dim::B]),
      heads_(call.extents[Dim::H]),
      kv_heads_(call.extents[Dim::HK]) {}

void DispatchRun::lay_out(const HopTensor& each) {
  const Layout& shards = call_.shard->layout;
  TensorHop& hop = hops_[each.tensor];
  hop.tensor = &each;
  hop.route = each.is_key_gradient() ? &state_.gradients
              : each.keys            ? &state_.keys_out
              : each.is_input        ? &state_.queries_out
                                     : &state_.queries_home;
  hop.batch = batch_, hop.heads = each.keys ? kv_heads_ : heads_;
  hop.home_tokens = each.keys ? shards.key_tokens(rank_) : shards.query_tokens(rank_);
  hop.away_tokens = each.keys ? state_.keys : state_.queries;
  if (hop.route->send_rows.data()) hop.sent = add_rows(hop, hop.route->copies.sent());
  if (each.is_key_gradient()) {  // it comes to slots, from which it is added up
    hop.away = program_.narrow          ? add_rows(hop, hop.away_tokens)
               : each.tensor == att::dk ? sections_.dk
                                        : sections_.dv;
    hop.home = hop.received = add_rows(hop, state_.plan.slot_tokens[rank_]);
    return;
  }
  if (hop.route->receive_rows.data()) hop.received = add_rows(hop, hop.route->copies.received());
  const RowView own = local(each).view;
  hop.direct =
      !each.per_row && batch_ == 1 && own.head == each.width && own.token == hop.heads * each.width;
  hop.home = hop.direct ? static_cast<char*>(own.data) : add_rows(hop, hop.home_tokens);
  hop.away = add_rows(hop, hop.away_tokens);
  if (each.per_row) hop.dense = add_rows(hop, hop.away_tokens);
}

// Lays out the buffers that a step reads and writes beside the travelling tensors, and these.
Status DispatchRun::lay_out() {
  const int64_t width = problem().head_dim, values = problem().value_dim;
  const int64_t queries = state_.queries, keys = state_.keys;
  const auto floats = [&](bool exists, std::initializer_list<int64_t> factors) {
    return exists ? add_section(factors) : nullptr;
  };
  const bool forward = problem().forward, backward = problem().backward;
  DispatchSections& s = sections_;
  s.out = floats(forward && program_.rounds(), {4, queries, batch_, heads_, values});
  s.delta = floats(bool(program_.steps.delta), {4, queries, batch_, heads_});
  s.dk = floats(backward, {4, keys, batch_, kv_heads_, width});
  s.dv = floats(backward, {4, keys, batch_, kv_heads_, values});
  s.dsinks = floats(problem().dsinks, {4, group_.world(), padded_heads()});
  s.dsinks_sum = floats(problem().dsinks, {4, padded_heads()});
  for (const HopTensor& each : tensors_) lay_out(each);
  // In float32 they travel as they are.
  const bool dq_travels = !program_.rounds() && wanted().dq;
  s.dq = dq_travels ? hops_[att::dq].away : floats(backward, {4, queries, batch_, heads_, width});
  if (problem().dsinks && program_.reduces) {
    dsinks_transfer_ = {&state_.dsinks, s.dsinks, s.dsinks, padded_heads() * 4};
  }
  LATHE_TRY(
      for_steps([this](const Executor& step, const Call& call) { return reserve(step, call); }));
  return lay_out_steps();
}

TokenRows DispatchRun::away(char* data, bool keys, int64_t width) const {
  TokenRows out;
  out.data = data;
  out.batch = batch_, out.tokens = keys ? state_.keys : state_.queries;
  out.heads = keys ? kv_heads_ : heads_, out.width = width;
  out.head_stride = width, out.batch_stride = out.heads * width;
  out.token_stride = out.batch * out.batch_stride;
  return out;
}

StepTensors DispatchRun::tensors() const {
  const auto queries = [this](char* data, int64_t width) { return away(data, false, width); };
  const auto keys = [this](char* k, char* v) {
    return KeyBlock{away(k, true, problem().head_dim), away(v, true, problem().value_dim)};
  };
  const int64_t width = problem().head_dim, values = problem().value_dim;
  StepTensors out;
  out.q = queries(hops_[att::q].away, width);
  out.keys = keys(hops_[att::k].away, hops_[att::v].away);
  out.ranges = state_.ranges.data();
  out.range_count = static_cast<int64_t>(state_.plan.ranges[rank_].size());
  if (packed_ && !problem().mods.empty()) out.range_sequences = state_.documents.data();
  out.slopes = call_.tensors[att::alibi_slopes].data;
  out.slopes_batch_stride = program_.request.alibi_rows ? heads_ : 0;
  out.out = queries(hops_[att::out].away, values);
  out.partial = program_.rounds() ? queries(sections_.out, values) : out.out;
  out.lse = hops_[att::lse].dense;
  if (!program_.steps.delta) return out;
  out.dout = queries(hops_[att::dout].away, values), out.dlse = hops_[att::dlse].dense;
  out.delta = sections_.delta;
  out.dsinks = own_dsinks();
  out.dq = queries(sections_.dq, width);
  out.sums = keys(sections_.dk, sections_.dv);
  return out;
}

template <typename F>
Status DispatchRun::for_steps(F f) const {
  const StepTensors in = tensors();
  for (const AttentionStep* step : program_.steps.all()) {
    if (!*step) continue;
    Call inner = step_call();
    program_.steps.put(*step, in, call_, &inner);
    LATHE_TRY(f(**step, inner));
  }
  return {};
}

Status DispatchRun::pack_inputs() const {
  return copy_all(true,
                  [&](const TensorHop& hop, RowCopier* compacted, RowCopier* packed) -> Status {
                    if (!hop.direct) {
                      const Side from = local(*hop.tensor);
                      LATHE_TRY(hop.copy(compacted, from, hop.compact(hop.home), hop.home_tokens));
                    }
                    LATHE_TRY(hop.pack(compacted, packed));
                    return hop.copy_own(packed);
                  });
}

Status DispatchRun::compute() const {
  const auto zero = [&](char* data, int64_t bytes) {
    return clear(group_, data, bytes, call_.stream);
  };
  if (problem().dsinks) {  // what pads it is read as well
    LATHE_TRY(zero(own_dsinks(), padded_heads() * 4));
  }
  if (problem().backward) {
    const int64_t width = problem().head_dim, values = problem().value_dim;
    LATHE_TRY(zero(sections_.dq, state_.queries * batch_ * heads_ * width * 4));
    LATHE_TRY(zero(sections_.dk, state_.keys * batch_ * kv_heads_ * width * 4));
    LATHE_TRY(zero(sections_.dv, state_.keys * batch_ * kv_heads_ * values * 4));
  }
  LATHE_TRY(for_steps([](const Executor& step, const Call& inner) { return step.run(inner); }));
  return program_.rounds() ? round_gradients() : Status();
}

// Rounds gradients to the types in which they travel: dq, which is complete; dk and dv only on
// request.
Status DispatchRun::round_gradients() const {
  if (wanted().dq) LATHE_TRY(round_rows(sections_.dq, hops_[att::dq]));
  for (const HopTensor& each : tensors_) {
    if (!each.is_key_gradient() || !program_.narrow) continue;
    const char* from = each.tensor == att::dk ? sections_.dk : sections_.dv;
    LATHE_TRY(round_rows(from, hops_[each.tensor]));
  }
  return {};
}

Status DispatchRun::round_rows(const char* from, const TensorHop& to) const {
  const int64_t row_heads = batch_ * to.heads, width = to.tensor->width;
  RowSum sum = {};
  sum.slots = from;
  sum.to = to.away;
  sum.token = sum.to_token = row_heads * width;
  sum.group = sum.to_head = width;
  sum.tokens = static_cast<int>(to.away_tokens), sum.batch_rows = 1;
  sum.heads = static_cast<int>(row_heads), sum.columns = static_cast<int>(width);
  sum.terms = 1, sum.own_at = static_cast<int>(kMaxExtent);
  RowAdder adder(program_.round, call_.stream);
  LATHE_TRY(adder.add(sum));
  return adder.launch();
}

Status DispatchRun::pack_results() const {
  return copy_all(false, [](const TensorHop& hop, RowCopier* turned, RowCopier* packed) -> Status {
    LATHE_TRY(hop.pack(turned, packed));
    return hop.tensor->is_key_gradient() ? Status() : hop.copy_own(packed);
  });
}

Status DispatchRun::unpack_results() const {
  const auto unpack = [&](const TensorHop& hop, RowCopier* scattered, RowCopier* own) -> Status {
    if (hop.tensor->is_key_gradient()) return {};
    LATHE_TRY(hop.unpack(scattered, own));
    if (hop.direct) return {};
    return hop.copy(own, hop.compact(hop.home), local(*hop.tensor), hop.home_tokens);
  };
  LATHE_TRY(copy_all(false, unpack));
  if (program_.add_keys) LATHE_TRY(add_key_gradients());
  return problem().dsinks ? add_dsinks() : Status();
}

Status DispatchRun::add_key_gradients() const {
  RowAdder adder(program_.add_keys, call_.stream);
  for (const HopTensor& each : tensors_) {
    if (!each.is_key_gradient()) continue;
    const TensorHop& hop = hops_[each.tensor];
    const Side to = local(each);
    RowSum sum = {};
    sum.slots = hop.received;
    sum.own = hop.away;
    sum.first = state_.sum_first.data(), sum.list = state_.sum_terms.data();
    sum.slot_rows = static_cast<int>(state_.plan.slot_tokens[rank_]);
    sum.to = to.view.data;
    sum.token = batch_ * kv_heads_ * each.width, sum.batch = kv_heads_ * each.width,
    sum.head = each.width;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(hop.home_tokens);
    sum.batch_rows = static_cast<int>(batch_), sum.heads = static_cast<int>(kv_heads_);
    sum.columns = static_cast<int>(each.width);
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Adds dsinks over the ranks if the group's flags ask for that.
Status DispatchRun::add_dsinks() const {
  RowSum sum = {};
  sum.slots = program_.reduces ? sections_.dsinks : own_dsinks();
  sum.to = sections_.dsinks_sum;
  sum.group = padded_heads();
  sum.tokens = sum.batch_rows = sum.heads = 1;
  sum.columns = static_cast<int>(padded_heads());
  sum.terms = program_.reduces ? group_.world() : 1;
  sum.own_at = static_cast<int>(kMaxExtent);
  RowAdder adder(program_.add_sinks, call_.stream);
  LATHE_TRY(adder.add(sum));
  LATHE_TRY(adder.launch());
  RowCopier copies = copier();
  Side from, to;
  from.view = {sections_.dsinks_sum, 0, 0, 1};
  to.view = {call_.tensors[att::dsinks].data, 0, 0, 1};
  LATHE_TRY(copies.add(from, to, 1, 1, heads_));
  return copies.launch();
}

// Estimates the steps, and the row copies before a hop and behind it.
Result<Estimate> DispatchRun::estimate() const {
  Estimate out;
  LATHE_TRY(for_steps([&](const Executor& step, const Call& inner) -> Status {
    LATHE_ASSIGN(const Estimate of, step.estimate(inner));
    out.add(of);
    return {};
  }));
  for (const HopTensor& each : tensors_) {
    if (each.is_key_gradient()) continue;
    const TensorHop& hop = hops_[each.tensor];
    out.cost.bytes += 2 * static_cast<uint64_t>(hop.bytes(hop.away_tokens));
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
