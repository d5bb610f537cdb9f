// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/dispatch.h"

namespace lathe {

namespace att = attention;

DispatchRun::DispatchRun(const AttentionDispatch& executor, const Call& call)
    : TravelRun(*executor.group_, executor.kernels_, executor.travellers_,
                executor.request_.problem.packed, call),
      executor_(executor),
      state_(static_cast<const DispatchShardState&>(*call.shard_state)),
      rank_(call.shard->rank),
      batch_(packed_ ? 1 : call.extents[Dim::B]),
      heads_(call.extents[Dim::H]),
      kv_heads_(call.extents[Dim::HK]) {}

void DispatchRun::lay_out(const Traveller& each) {
  const Layout& shards = call_.shard->layout;
  Journey& way = ways_[each.tensor];
  way.each = &each;
  way.route = each.is_key_gradient() ? &state_.gradients
              : each.keys            ? &state_.keys_there
              : each.there           ? &state_.queries_there
                                     : &state_.queries_back;
  way.batch = batch_, way.heads = each.keys ? kv_heads_ : heads_;
  way.tokens = each.keys ? shards.key_tokens(rank_) : shards.query_tokens(rank_);
  way.arrived = each.keys ? state_.keys : state_.queries;
  if (way.route->send_rows.data()) way.sent = rows(way, way.route->copies.sent());
  if (each.is_key_gradient()) {  // it comes to slots, from which it is added up
    way.far = executor_.narrow_ ? rows(way, way.arrived) : each.tensor == att::dk ? dk_ : dv_;
    way.near = way.received = rows(way, state_.plan.slot_tokens[rank_]);
    return;
  }
  if (way.route->receive_rows.data()) way.received = rows(way, way.route->copies.received());
  const RowView own = local(each).view;
  way.direct =
      !each.rows && batch_ == 1 && own.head == each.width && own.token == way.heads * each.width;
  way.near = way.direct ? static_cast<char*>(own.data) : rows(way, way.tokens);
  way.far = rows(way, way.arrived);
  if (each.rows) way.dense = rows(way, way.arrived);
}

// Lays out the buffers that a step reads and writes beside the travelling tensors, and these.
Status DispatchRun::lay_out() {
  const int64_t width = problem().head_dim, values = problem().value_dim;
  const bool sinks = problem().dsinks;
  const auto floats = [&](bool there, std::initializer_list<int64_t> factors) {
    return there ? section(factors) : nullptr;
  };
  out_ =
      floats(problem().forward && executor_.rounds(), {4, state_.queries, batch_, heads_, values});
  delta_ = floats(executor_.steps_.delta != nullptr, {4, state_.queries, batch_, heads_});
  dk_ = floats(backward(), {4, state_.keys, batch_, kv_heads_, width});
  dv_ = floats(backward(), {4, state_.keys, batch_, kv_heads_, values});
  dsinks_ = floats(sinks, {4, group_.world(), padded_heads()});
  dsinks_sum_ = floats(sinks, {4, padded_heads()});
  for (const Traveller& each : travellers_) lay_out(each);
  // In float32 they travel as they are.
  const bool dq_travels = !executor_.rounds() && executor_.request_.gradients.dq;
  dq_ = dq_travels ? ways_[att::dq].far
                   : floats(backward(), {4, state_.queries, batch_, heads_, width});
  size_t inner = 0;
  LATHE_TRY(for_steps([&](const Executor& step, const Call& call) -> Status {
    LATHE_ASSIGN(const size_t bytes, step.workspace_bytes(call));
    inner = std::max(inner, bytes);
    return {};
  }));
  return lay_out_steps(inner);
}

// Returns rows as they arrive: token after token, each with all rows of the batch.
TokenRows DispatchRun::arrived(char* data, bool keys, int64_t width) const {
  TokenRows out;
  out.data = data;
  out.batch = batch_, out.tokens = keys ? state_.keys : state_.queries;
  out.heads = keys ? kv_heads_ : heads_, out.width = width;
  out.head_stride = width, out.batch_stride = out.heads * width;
  out.token_stride = out.batch * out.batch_stride;
  return out;
}

BlockInputs DispatchRun::inputs() const {
  const int64_t width = problem().head_dim, values = problem().value_dim;
  BlockInputs out;
  out.q = arrived(ways_[att::q].far, false, width);
  out.keys = {arrived(ways_[att::k].far, true, width), arrived(ways_[att::v].far, true, values)};
  out.ranges = state_.ranges.data();
  out.range_count = static_cast<int64_t>(state_.plan.ranges[rank_].size());
  if (packed_ && !problem().mods.empty()) out.range_sequences = state_.documents.data();
  out.slopes = call_.tensors[att::alibi_slopes].data;
  out.slopes_batch_stride = executor_.request_.alibi_rows ? heads_ : 0;
  return out;
}

template <typename F>
Status DispatchRun::for_steps(F f) const {
  const AttentionSteps& steps = executor_.steps_;
  const int64_t width = problem().head_dim, values = problem().value_dim;
  const TokenRows out = arrived_values(att::out);
  const TokenRows partial = executor_.rounds() ? arrived(out_, false, values) : out;
  const char* lse = ways_[att::lse].dense;
  const auto with_call = [&](const auto& step, auto put) -> Status {
    if (step == nullptr) return {};
    Call inner = step_call();
    put(&inner);
    return f(step->executor(), inner);
  };
  LATHE_TRY(with_call(steps.first, [&](Call* inner) {
    steps.put_forward(*steps.first, inputs(), partial, lse, call_, inner);
  }));
  LATHE_TRY(with_call(steps.finish,
                      [&](Call* inner) { steps.put_finish(partial, lse, out, call_, inner); }));
  LATHE_TRY(with_call(steps.delta, [&](Call* inner) {
    steps.put_delta(
        {out, arrived_values(att::dout), lse, ways_[att::dlse].dense, delta_, own_dsinks()}, call_,
        inner);
  }));
  return with_call(steps.gradients_next, [&](Call* inner) {
    const KeyBlock sums = {arrived(dk_, true, width), arrived(dv_, true, values)};
    steps.put_gradients(*steps.gradients_next, inputs(),
                        {arrived_values(att::dout), arrived(dq_, false, width), sums, lse, delta_},
                        call_, inner);
  });
}

Status DispatchRun::operator()() {
  LATHE_TRY(go_out());
  LATHE_TRY(exchange(true, "dispatch", state_));
  LATHE_TRY(enter_all(true));
  LATHE_TRY(compute());
  LATHE_TRY(set_out_for_home());
  RowTransfer dsinks;
  if (problem().dsinks && executor_.reduces_) {
    dsinks = {&state_.shares, dsinks_, dsinks_, padded_heads() * 4};
  }
  LATHE_TRY(exchange(false, "dispatch's results", state_, dsinks));
  return come_home();
}

Status DispatchRun::go_out() const {
  return copy_all(true, [&](const Journey& way, RowCopier* compacted, RowCopier* packed) -> Status {
    if (!way.direct) {
      LATHE_TRY(way.copy(compacted, local(*way.each), way.compact(way.near), way.tokens));
    }
    LATHE_TRY(way.leave(compacted, packed));
    return way.stay(packed);
  });
}

Status DispatchRun::compute() const {
  if (problem().dsinks) {  // what pads it is read as well
    LATHE_TRY(clear(own_dsinks(), padded_heads() * 4));
  }
  if (backward()) {
    const int64_t width = problem().head_dim, values = problem().value_dim;
    LATHE_TRY(clear(dq_, state_.queries * batch_ * heads_ * width * 4));
    LATHE_TRY(clear(dk_, state_.keys * batch_ * kv_heads_ * width * 4));
    LATHE_TRY(clear(dv_, state_.keys * batch_ * kv_heads_ * values * 4));
  }
  LATHE_TRY(for_steps([](const Executor& step, const Call& inner) { return step.run(inner); }));
  return executor_.rounds() ? round_gradients() : Status();
}

Status DispatchRun::round_rows(const char* from, char* to, int64_t tokens, int64_t heads,
                               int64_t width) const {
  const int64_t row_heads = batch_ * heads;
  RowSum sum = {};
  sum.slots = from;
  sum.to = to;
  sum.token = sum.to_token = row_heads * width;
  sum.group = sum.to_head = width;
  sum.tokens = static_cast<int>(tokens), sum.batch_rows = 1;
  sum.heads = static_cast<int>(row_heads), sum.columns = static_cast<int>(width);
  sum.terms = 1, sum.own_at = static_cast<int>(kMaxExtent);
  RowAdder adder(executor_.round_, call_.stream);
  LATHE_TRY(adder.add(sum));
  return adder.launch();
}

// Rounds gradients to the types in which they travel: dq, which is complete; dk and dv only on
// request.
Status DispatchRun::round_gradients() const {
  if (executor_.request_.gradients.dq) {
    LATHE_TRY(round_rows(dq_, ways_[att::dq].far, state_.queries, heads_, problem().head_dim));
  }
  for (const Traveller& each : travellers_) {
    if (!each.is_key_gradient() || !executor_.narrow_) continue;
    LATHE_TRY(round_rows(each.tensor == att::dk ? dk_ : dv_, ways_[each.tensor].far, state_.keys,
                         kv_heads_, each.width));
  }
  return {};
}

Status DispatchRun::set_out_for_home() const {
  return copy_all(false, [](const Journey& way, RowCopier* turned, RowCopier* packed) -> Status {
    LATHE_TRY(way.leave(turned, packed));
    return way.each->is_key_gradient() ? Status() : way.stay(packed);
  });
}

Status DispatchRun::come_home() const {
  const auto add = [&](const Journey& way, RowCopier* scattered, RowCopier* own) -> Status {
    if (way.each->is_key_gradient()) return {};
    LATHE_TRY(way.enter(scattered, own));
    if (way.direct) return {};
    return way.copy(own, way.compact(way.near), local(*way.each), way.tokens);
  };
  LATHE_TRY(copy_all(false, add));
  if (executor_.add_keys_) LATHE_TRY(add_key_gradients());
  return problem().dsinks ? add_dsinks() : Status();
}

Status DispatchRun::add_key_gradients() const {
  RowAdder adder(executor_.add_keys_, call_.stream);
  for (const Traveller& each : travellers_) {
    if (!each.is_key_gradient()) continue;
    const Journey& way = ways_[each.tensor];
    const Side to = local(each);
    RowSum sum = {};
    sum.slots = way.received;
    sum.own = way.far;
    sum.first = state_.sum_first.data(), sum.list = state_.sum_terms.data();
    sum.slot_rows = static_cast<int>(state_.plan.slot_tokens[rank_]);
    sum.to = to.view.data;
    sum.token = batch_ * kv_heads_ * each.width, sum.batch = kv_heads_ * each.width,
    sum.head = each.width;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(way.tokens);
    sum.batch_rows = static_cast<int>(batch_), sum.heads = static_cast<int>(kv_heads_);
    sum.columns = static_cast<int>(each.width);
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Adds dsinks over the ranks if the group's flags ask for that.
Status DispatchRun::add_dsinks() const {
  RowSum sum = {};
  sum.slots = executor_.reduces_ ? dsinks_ : own_dsinks();
  sum.to = dsinks_sum_;
  sum.group = padded_heads();
  sum.tokens = sum.batch_rows = sum.heads = 1;
  sum.columns = static_cast<int>(padded_heads());
  sum.terms = executor_.reduces_ ? group_.world() : 1;
  sum.own_at = static_cast<int>(kMaxExtent);
  RowAdder adder(executor_.add_sinks_, call_.stream);
  LATHE_TRY(adder.add(sum));
  LATHE_TRY(adder.launch());
  RowCopier copies = mover();
  Side from, to;
  from.view = {dsinks_sum_, 0, 0, 1};
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
  for (const Traveller& each : travellers_) {
    if (each.is_key_gradient()) continue;
    const Journey& way = ways_[each.tensor];
    out.cost.bytes +=
        2 * static_cast<uint64_t>(way.arrived * way.batch * way.heads * each.width * each.bytes);
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
