// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs one call of attention by dispatch: rows go out in one hop, a step computes over whole
// contexts, results go home in one hop. A backward in the same call needs no hop of its own: its
// upstream gradients go out with the queries.
#include "codegen/base/invalid.h"
#include "ops/attention/ranks/dispatch.h"

namespace lathe {
namespace {

namespace att = attention;

}  // namespace

// Holds the steps of one call, in their order. A copy that reads another copy's output is a
// separate launch. Hops wait for the stream, and the stream waits for hops.
class DispatchRun {
 public:
  DispatchRun(const AttentionDispatch& executor, const Call& call, const DispatchOffsets& offsets)
      : executor_(executor), call_(call), offsets_(offsets), state_(*offsets.state) {}

  Status operator()() {
    LATHE_TRY(go_out());
    LATHE_TRY(exchange(true));
    LATHE_TRY(arrive());
    LATHE_TRY(compute());
    LATHE_TRY(set_out_for_home());
    LATHE_TRY(exchange(false));
    return come_home();
  }

 private:
  using Side = RowCopier::Side;
  const AttentionRequest& asked() const { return executor_.request_; }
  char* at(int64_t offset) const { return call_.workspace + offset; }
  const DispatchTensorOffsets& offsets_of(const Traveller& each) const {
    return offsets_.tensors[each.tensor];
  }
  int64_t tokens(const Traveller& each) const {
    const Layout& layout = call_.shard->layout;
    const int rank = call_.shard->rank;
    return each.keys ? layout.key_tokens(rank) : layout.query_tokens(rank);
  }
  RowCopier mover() const { return RowCopier(executor_.kernels_, call_.stream); }
  Side local(const Traveller& each) const {
    return local_side(each, call_.tensors[each.tensor], executor_.packed());
  }
  Journey journey(const Traveller& each) const;

  Status go_out();
  Status arrive();
  Status compute();
  Status clear(int64_t offset, int64_t bytes) const {
    return lathe::clear(*executor_.group_, at(offset), bytes, call_.stream);
  }
  Status gradients();
  Status round_rows(int64_t from, char* to, int64_t rows, int64_t row_heads, int64_t width) const;
  Status set_out_for_home();
  Status come_home();
  Status exchange(bool there) const;
  Status add_key_gradients() const;
  Status add_dsinks() const;

  const AttentionDispatch& executor_;
  const Call& call_;
  const DispatchOffsets& offsets_;
  const DispatchShardState& state_;
};

// Gradients of keys come to slots, from which they are added up.
Journey DispatchRun::journey(const Traveller& each) const {
  const DispatchTensorOffsets& o = offsets_of(each);
  const bool gradient = each.keys && !each.there;
  Journey out;
  out.each = &each;
  out.route = gradient     ? &state_.gradients
              : each.keys  ? &state_.keys_there
              : each.there ? &state_.queries_there
                           : &state_.queries_back;
  out.batch = offsets_.batch, out.heads = each.keys ? offsets_.kv_heads : offsets_.heads;
  out.arrived = each.keys ? state_.keys : state_.queries;
  out.near = gradient ? at(o.received) : o.direct ? call_.tensors[each.tensor].data : at(o.home);
  out.far = at(o.far), out.dense = at(o.dense);
  out.sent = at(o.sent), out.received = at(o.received);
  return out;
}

Status DispatchRun::go_out() {
  RowCopier compacted = mover(), packed = mover();
  for (const Traveller& each : executor_.tensors_) {
    if (!each.there) continue;
    const Journey way = journey(each);
    if (!offsets_of(each).direct) {
      LATHE_TRY(way.copy(&compacted, local(each), way.compact(way.near), tokens(each)));
    }
    LATHE_TRY(way.leave(&compacted, &packed));
    LATHE_TRY(way.stay(&packed));
  }
  LATHE_TRY(compacted.launch());
  return packed.launch();
}

Status DispatchRun::arrive() {
  RowCopier scattered = mover(), turned = mover();
  for (const Traveller& each : executor_.tensors_) {
    if (each.there) LATHE_TRY(journey(each).enter(&scattered, &turned));
  }
  LATHE_TRY(scattered.launch());
  return turned.launch();
}

Status DispatchRun::compute() {
  if (asked().problem.dsinks) {  // what pads it is read as well
    const int64_t share = offsets_.padded_heads() * 4;
    LATHE_TRY(clear(offsets_.dsinks + call_.shard->rank * share, share));
  }
  if (executor_.steps_.gradients_next) {
    const int64_t width = asked().problem.head_dim, values = asked().problem.value_dim;
    const int64_t kv_heads = offsets_.batch * offsets_.kv_heads;
    LATHE_TRY(clear(offsets_.dq, state_.queries * offsets_.batch * offsets_.heads * width * 4));
    LATHE_TRY(clear(offsets_.dk, state_.keys * kv_heads * width * 4));
    LATHE_TRY(clear(offsets_.dv, state_.keys * kv_heads * values * 4));
  }
  LATHE_TRY(executor_.for_steps(
      call_, offsets_, [](const Executor& step, const Call& inner) { return step.run(inner); }));
  return executor_.steps_.gradients_next ? gradients() : Status();
}

Status DispatchRun::round_rows(int64_t from, char* to, int64_t rows, int64_t row_heads,
                               int64_t width) const {
  RowSum sum = {};
  sum.slots = at(from);
  sum.to = to;
  sum.token = sum.to_token = row_heads * width;
  sum.group = sum.to_head = width;
  sum.tokens = static_cast<int>(rows), sum.batch_rows = 1;
  sum.heads = static_cast<int>(row_heads), sum.columns = static_cast<int>(width);
  sum.terms = 1, sum.own_at = static_cast<int>(kMaxExtent);
  RowAdder adder(executor_.round_, call_.stream);
  LATHE_TRY(adder.add(sum));
  return adder.launch();
}

// Rounds gradients to the types in which they travel: dq, which is complete; dk and dv only on
// request.
Status DispatchRun::gradients() {
  if (!executor_.rounds()) return {};
  if (asked().gradients.dq) {
    LATHE_TRY(round_rows(offsets_.dq, at(offsets_.tensors[att::dq].far), state_.queries,
                         offsets_.batch * offsets_.heads, asked().problem.head_dim));
  }
  if (!executor_.narrow_) return {};
  for (const Traveller& each : executor_.key_gradients_) {
    LATHE_TRY(round_rows(each.tensor == att::dk ? offsets_.dk : offsets_.dv,
                         at(offsets_of(each).far), state_.keys, offsets_.batch * offsets_.kv_heads,
                         each.width));
  }
  return {};
}

Status DispatchRun::set_out_for_home() {
  RowCopier turned = mover(), packed = mover();
  for (const Traveller& each : executor_.tensors_) {
    if (each.there) continue;
    LATHE_TRY(journey(each).leave(&turned, &packed));
    LATHE_TRY(journey(each).stay(&packed));
  }
  for (const Traveller& each : executor_.key_gradients_) {
    LATHE_TRY(journey(each).leave(&turned, &packed));
  }
  LATHE_TRY(turned.launch());
  return packed.launch();
}

Status DispatchRun::come_home() {
  RowCopier scattered = mover(), local_rows = mover();
  for (const Traveller& each : executor_.tensors_) {
    if (each.there) continue;
    const Journey way = journey(each);
    LATHE_TRY(way.enter(&scattered, &local_rows));
    if (offsets_of(each).direct) continue;
    LATHE_TRY(way.copy(&local_rows, way.compact(way.near), local(each), tokens(each)));
  }
  LATHE_TRY(scattered.launch());
  LATHE_TRY(local_rows.launch());
  if (executor_.add_keys_) LATHE_TRY(add_key_gradients());
  return asked().problem.dsinks ? add_dsinks() : Status();
}

Status DispatchRun::exchange(bool there) const {
  std::array<RowTransfer, att::count> tensors;
  size_t count = 0;
  for (const Traveller& each : executor_.tensors_) {
    if (each.there != there) continue;
    tensors[count++] = journey(each).transfer();
  }
  for (const Traveller& each : executor_.key_gradients_) {
    if (!there) tensors[count++] = journey(each).transfer();
  }
  if (!there && asked().problem.dsinks && executor_.reduces_) {
    char* shares = at(offsets_.dsinks);
    tensors[count++] = {&state_.shares, shares, shares, offsets_.padded_heads() * 4};
  }
  const Hop hop = hop_of(std::span(tensors).first(count), there ? "dispatch" : "dispatch's results",
                         state_.sends, state_.receives);
  return Exchange(*executor_.group_, call_.stream).run(hop);
}

Status DispatchRun::add_key_gradients() const {
  RowAdder adder(executor_.add_keys_, call_.stream);
  for (const Traveller& each : executor_.key_gradients_) {
    const int64_t heads = offsets_.kv_heads;
    const Side to = local(each);
    RowSum sum = {};
    sum.slots = at(offsets_of(each).received);
    sum.own = at(offsets_of(each).far);
    sum.first = state_.sum_first.data(), sum.list = state_.sum_terms.data();
    sum.slot_rows = static_cast<int>(state_.plan.slot_tokens[call_.shard->rank]);
    sum.to = to.view.data;
    sum.token = offsets_.batch * heads * each.width, sum.batch = heads * each.width,
    sum.head = each.width;
    sum.to_token = to.view.token, sum.to_batch = to.view.batch, sum.to_head = to.view.head;
    sum.tokens = static_cast<int>(tokens(each));
    sum.batch_rows = static_cast<int>(offsets_.batch), sum.heads = static_cast<int>(heads);
    sum.columns = static_cast<int>(each.width);
    LATHE_TRY(adder.add(sum));
  }
  return adder.launch();
}

// Adds dsinks over the ranks if the group's flags ask for that.
Status DispatchRun::add_dsinks() const {
  const int64_t padded = offsets_.padded_heads();
  const int64_t own = call_.shard->rank * padded * 4;
  RowSum sum = {};
  sum.slots = at(offsets_.dsinks + (executor_.reduces_ ? 0 : own));
  sum.to = at(offsets_.dsinks_sum);
  sum.group = padded;
  sum.tokens = sum.batch_rows = sum.heads = 1;
  sum.columns = static_cast<int>(padded);
  sum.terms = executor_.reduces_ ? executor_.group_->world() : 1;
  sum.own_at = static_cast<int>(kMaxExtent);
  RowAdder adder(executor_.add_sinks_, call_.stream);
  LATHE_TRY(adder.add(sum));
  LATHE_TRY(adder.launch());
  RowCopier copies = mover();
  Side from, to;
  from.view = {at(offsets_.dsinks_sum), 0, 0, 1};
  to.view = {call_.tensors[att::dsinks].data, 0, 0, 1};
  LATHE_TRY(copies.add(from, to, 1, 1, offsets_.heads));
  return copies.launch();
}

Status AttentionDispatch::launch(const Call& call, const DispatchOffsets& offsets) const {
  return DispatchRun(*this, call, offsets)();
}

// Estimates the steps, and the row copies before a hop and behind it.
Result<Estimate> AttentionDispatch::estimate_plan(const Call& call,
                                                  const DispatchOffsets& offsets) const {
  Estimate out;
  LATHE_TRY(for_steps(call, offsets, [&](const Executor& step, const Call& inner) -> Status {
    LATHE_ASSIGN(const Estimate of, step.estimate(inner));
    out.add(of);
    return {};
  }));
  for (const Traveller& each : tensors_) {
    const int64_t heads = each.keys ? offsets.kv_heads : offsets.heads;
    const int64_t rows = each.keys ? offsets.state->keys : offsets.state->queries;
    out.cost.bytes +=
        2 * static_cast<uint64_t>(rows * offsets.batch * heads * each.width * each.bytes);
  }
  out.launches += 2;
  return out;
}

}  // namespace lathe
