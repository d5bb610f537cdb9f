// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by exchanged heads: what travels, where it lies, and the two hops around the call.
// After DeepSpeed Ulysses (arXiv 2309.14509), for any balance: whole sequences are put together in
// the order of their positions, so the call in the middle knows nothing of ranks.
#include "api/attention_heads.h"

#include <algorithm>
#include <cstdlib>

#include "api/boundary.h"
#include "api/row_moves.h"
#include "codegen/kernels/moves.h"

namespace lathe {
namespace {

namespace att = attention;

// A tensor that is cut along the tokens.
struct Traveller {
  int tensor = 0;
  bool keys = false;  // tokens and heads of keys
  bool rows = false;  // float32 [B, H, tokens]: one number a row
  bool there = true;  // an input; else a result
};

struct AxisRoutes {
  RowRoute there, back;
};

class HeadsPrepared final : public Prepared {
 public:
  AxisRoutes queries, keys;
  int64_t all_queries = 0, all_keys = 0;  // of the part that the ranks hold together
  RankMoves dsinks;                       // rows are ranks' shares
  // Two levels: the part among the others, and what the ring made of it.
  lathe_shard ring;
  std::unique_ptr<const Prepared> of_ring;
  // Room for the messages of one hop. A group runs one call at a time.
  mutable std::vector<Transfer> sends, receives;

  const AxisRoutes& axis(bool of_keys) const { return of_keys ? keys : queries; }
  int64_t all(bool of_keys) const { return of_keys ? all_keys : all_queries; }
};

// Where a traveller lies in the workspace.
struct Spot {
  int64_t message = 0;  // a share of the heads for, or from, each other rank
  int64_t whole = 0;    // [all tokens, batch, share of the heads]
  int64_t staged = 0;   // packed: what came or goes, in the order of the messages
  int64_t dense = 0;    // of rows: [batch, share of the heads, all tokens]
};

struct Laid {
  const HeadsPrepared* prepared = nullptr;
  HeadShare share;
  int64_t batch = 1;
  std::array<Spot, att::count> spots;
  int64_t slopes = 0, inner = 0, inner_bytes = 0;
  size_t total = 0;
};

class AttentionHeads final : public ComposedWork {
 public:
  AttentionHeads(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  Status split(const lathe_problem& problem);
  Status make_part(const lathe_problem& problem, const Extents& promised, const DeviceFacts& facts);

  Result<std::unique_ptr<const Prepared>> prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  friend class HeadsRun;
  bool packed() const { return request_.problem.packed; }
  Letter token_letter(bool keys) const {
    return keys ? (packed() ? Letter::Tk : Letter::Sk) : (packed() ? Letter::Tq : Letter::Sq);
  }
  int64_t heads_of(const Traveller& each, const HeadShare& share) const {
    return each.keys ? share.kv_heads : share.q_heads;
  }
  int64_t width_of(const Traveller& each) const;
  int64_t element_bytes(const Traveller& each) const {
    return each.rows ? 4 : bytes_of(request_.problem.element);
  }
  bool sums(const Traveller& each, const HeadShare& share) const {
    return each.keys && !each.there && share.repeat > 1;
  }
  Status lay_out(const Call& call, const Traveller& each, Laid* laid, Sections* sections) const;
  Result<Laid> lay_out(const Call& call) const;
  Call inner_call(const Call& call, const Laid& laid) const;

  AttentionRequest request_;
  Group* group_;  // of the ranks that exchange heads
  std::shared_ptr<Group> of_heads_;
  lathe_group of_ring_;  // without a second level: none
  bool reduces_;         // dsinks are summed over the ranks
  std::vector<Traveller> travellers_;
  std::vector<int> declared_;
  std::unique_ptr<Part> part_;
  RowKernels kernels_;
  std::shared_ptr<const Kernel> sum_;
};

AttentionHeads::AttentionHeads(const lathe_problem& problem, const AttentionRequest& request,
                               Group* group)
    : request_(request),
      group_(group),
      reduces_((problem.group_flags & LATHE_REDUCE_PARAMETER_GRADS) != 0) {
  for (int i = 0; i < att::count; ++i) {
    if (problem.has(i)) declared_.push_back(i);
  }
  const auto add = [&](int tensor, bool keys, bool rows) {
    if (problem.has(tensor)) travellers_.push_back({tensor, keys, rows, !problem.writes(tensor)});
  };
  add(att::q, false, false), add(att::k, true, false), add(att::v, true, false);
  add(att::dout, false, false), add(att::dlse, false, true);
  add(att::out, false, false), add(att::lse, false, true);
  add(att::dq, false, false), add(att::dk, true, false), add(att::dv, true, false);
}

Status AttentionHeads::split(const lathe_problem& problem) {
  const std::string value = problem.option("head_ranks");
  const int count = std::atoi(value.c_str()), world = group_->world(), rank = group_->rank();
  if (count == 0 || count == world) return {};
  if (count > world || world % count != 0) {
    return invalid(text("option head_ranks is ", value, ", but the group has ", world,
                        " ranks; allowed are 0 and what divides that"));
  }
  LATHE_ASSIGN(of_ring_.group, Group::split(*group_, rank % count, rank));
  LATHE_ASSIGN(of_heads_, Group::split(*group_, rank / count, rank));
  group_ = of_heads_.get();
  return {};
}

Status AttentionHeads::make_part(const lathe_problem& problem, const Extents& promised,
                                 const DeviceFacts& facts) {
  LATHE_ASSIGN(const HeadShare share,
               head_share(promised[Letter::H], promised[Letter::HK], group_->world()));
  LATHE_ASSIGN(part_, Part::make("flash_attention", facts, [&](lathe_problem& inner) -> Status {
                 inner.tensors = problem.tensors;
                 inner.options = problem.options;
                 inner.snippets = problem.snippets;
                 inner.first_head = group_->rank() * share.q_heads;
                 if (of_ring_.group) {
                   inner.group = &of_ring_;
                   inner.group_flags = problem.group_flags & ~LATHE_EXCHANGE_HEADS;
                 }
                 for (Declared& declared : inner.tensors) {
                   for (int d = 0; d < declared.shape.rank; ++d) {
                     int64_t& extent = declared.extents[d];
                     const Letter letter = declared.shape.dims[d].letter;
                     if (letter == Letter::H) extent = share.q_heads;
                     if (letter == Letter::HK) extent = share.kv_heads;
                     if (letter == token_letter(false) || letter == token_letter(true)) {
                       extent = kUnknown;
                     }
                   }
                 }
                 return {};
               }));
  add(move_rows_spec(16), &kernels_.wide);
  add(move_rows_spec(4), &kernels_.narrow);
  const Dtype element = request_.problem.element;
  if (share.repeat > 1) add(sum_rows_spec(element, element, false), &sum_);
  add(part_.get());
  return {};
}

int64_t AttentionHeads::width_of(const Traveller& each) const {
  if (each.rows) return 1;
  const bool values = each.tensor == att::v || each.tensor == att::dv || each.tensor == att::out ||
                      each.tensor == att::dout;
  return values ? request_.problem.value_dim : request_.problem.head_dim;
}

Result<std::unique_ptr<const Prepared>> AttentionHeads::prepare(const lathe_shard& shard) const {
  auto out = std::make_unique<HeadsPrepared>();
  const Device& device = group_->device();
  const int count = group_->world(), rank = group_->rank();
  const int first = shard.rank - rank;
  size_t most = 0;
  for (const bool keys : {false, true}) {
    const ShardLayout& layout = keys ? shard.layout.keys : shard.layout.queries;
    const ShardLayout inside = inside_part(layout, first, count);
    int64_t& all = keys ? out->all_keys : out->all_queries;
    for (const auto& intervals : inside) {
      for (const Interval& interval : intervals) all += interval.size();
    }
    const Moves moves = axis_moves(inside);
    const bool packs = most_between(moves) * 3 > kMostMessages;
    AxisRoutes& routes = keys ? out->keys : out->queries;
    LATHE_ASSIGN(routes.there, RowRoute::make(device, moves_of_rank(moves, rank, packs)));
    LATHE_ASSIGN(routes.back, RowRoute::make(device, moves_of_rank(reversed(moves), rank, packs)));
    most += routes.there.moves.sends.size() + routes.there.moves.receives.size();
  }
  for (int peer = 0; peer < group_->world(); ++peer) {
    if (peer == group_->rank()) continue;
    out->dsinks.sends.push_back({peer, group_->rank(), 1});
    out->dsinks.receives.push_back({peer, peer, 1});
  }
  if (of_ring_.group) {
    out->ring.layout = shard.layout;
    out->ring.layout.queries = joined_parts(shard.layout.queries, count);
    out->ring.layout.keys = joined_parts(shard.layout.keys, count);
    out->ring.rank = of_ring_.group->rank();
    LATHE_ASSIGN(out->of_ring, part_->work().prepare(out->ring));
  }
  const size_t room = most * travellers_.size() + out->dsinks.sends.size();
  out->sends.resize(room), out->receives.resize(room);
  return std::unique_ptr<const Prepared>(std::move(out));
}

Status AttentionHeads::lay_out(const Call& call, const Traveller& each, Laid* laid,
                               Sections* sections) const {
  const int64_t tokens = call.extents[token_letter(each.keys)];
  const int64_t all = laid->prepared->all(each.keys);
  const RowRoute& route =
      each.there ? laid->prepared->axis(each.keys).there : laid->prepared->axis(each.keys).back;
  const int64_t heads = heads_of(each, laid->share), width = width_of(each);
  const int64_t bytes = element_bytes(each);
  const int64_t groups = group_->world() - (sums(each, laid->share) ? 0 : 1);
  Spot& spot = laid->spots[each.tensor];
  LATHE_TRY(sections->add({groups, tokens, laid->batch, heads, width, bytes}, &spot.message));
  LATHE_TRY(sections->add({all, laid->batch, heads, width, bytes}, &spot.whole));
  const DeviceTable& staged = each.there ? route.receive_rows : route.send_rows;
  if (staged.data() != nullptr) {
    const int64_t rows = each.there ? route.moves.received() : route.moves.sent();
    LATHE_TRY(sections->add({rows, laid->batch, heads, width, bytes}, &spot.staged));
  }
  if (!each.rows) return {};
  return sections->add({all, laid->batch, heads, bytes}, &spot.dense);
}

Result<Laid> AttentionHeads::lay_out(const Call& call) const {
  Laid laid;
  laid.prepared = static_cast<const HeadsPrepared*>(call.prepared);
  if (laid.prepared == nullptr) {
    return invalid("the shard was not prepared for this plan (lathe_shard_prepare)");
  }
  LATHE_ASSIGN(laid.share,
               head_share(call.extents[Letter::H], call.extents[Letter::HK], group_->world()));
  laid.batch = packed() ? 1 : call.extents[Letter::B];
  Sections sections;
  for (const Traveller& each : travellers_) LATHE_TRY(lay_out(call, each, &laid, &sections));
  if (request_.alibi_rows) {
    LATHE_TRY(sections.add({call.extents[packed() ? Letter::N : Letter::B], laid.share.q_heads, 4},
                           &laid.slopes));
  }
  LATHE_ASSIGN(const size_t inner, part_->work().workspace_bytes(inner_call(call, laid)));
  LATHE_TRY(sections.add({static_cast<int64_t>(inner)}, &laid.inner, &laid.inner_bytes));
  laid.total = sections.total();
  return laid;
}

// The whole sequences of this rank's heads.
Call AttentionHeads::inner_call(const Call& call, const Laid& laid) const {
  Call inner;
  inner.stream = call.stream;
  inner.workspace = call.workspace + laid.inner;
  inner.workspace_bytes = static_cast<size_t>(laid.inner_bytes);
  inner.extents = call.extents;
  for (const int i : declared_) inner.tensors[i] = call.tensors[i];
  if (of_ring_.group) {
    inner.shard = &laid.prepared->ring;
    inner.prepared = laid.prepared->of_ring.get();
  }
  const int64_t batch = laid.batch;
  for (const Traveller& each : travellers_) {
    const int64_t all = laid.prepared->all(each.keys);
    const int64_t heads = heads_of(each, laid.share), width = width_of(each);
    const Spot& spot = laid.spots[each.tensor];
    char* data = call.workspace + (each.rows ? spot.dense : spot.whole);
    if (each.rows && packed()) part_->put(&inner, each.tensor, data, {heads, all});
    if (each.rows && !packed()) part_->put(&inner, each.tensor, data, {batch, heads, all});
    if (!each.rows && packed()) part_->put(&inner, each.tensor, data, {all, heads, width});
    if (!each.rows && !packed()) {
      part_->put(&inner, each.tensor, data, {batch, all, heads, width},
                 {heads * width, batch * heads * width, width, 1});
    }
  }
  const int64_t first = group_->rank() * laid.share.q_heads;
  for (const int tensor : {att::sinks, att::dsinks, att::alibi_slopes}) {
    char*& data = inner.tensors[tensor].data;
    if (data != nullptr) data += first * 4;
  }
  if (request_.alibi_rows) inner.tensors[att::alibi_slopes].data = call.workspace + laid.slopes;
  return inner;
}

// One call: its places, and the steps in their order.
class HeadsRun {
 public:
  HeadsRun(const AttentionHeads& work, const Call& call, const Laid& laid)
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
    const Spot* spot = nullptr;
    int64_t row() const { return heads * width; }
  };
  Place place(const Traveller& each) const {
    const AxisRoutes& axis = laid_.prepared->axis(each.keys);
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
  Side local(const Traveller& each, const Place& p, int64_t skip_at, int64_t skip) const {
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
  const Laid& laid_;
  int rank_;
};

// Shares of the other ranks into messages, the own one where it belongs.
Status HeadsRun::pack() {
  RowMover moves = mover();
  for (const Traveller& each : work_.travellers_) {
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
  for (const Traveller& each : work_.travellers_) {
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
  for (const Traveller& each : work_.travellers_) {
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
  for (const Traveller& each : work_.travellers_) {
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
  for (const Traveller& each : work_.travellers_) {
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
  for (const Traveller& each : work_.travellers_) {
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

Result<size_t> AttentionHeads::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  return laid.total;
}

Status AttentionHeads::run(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  return HeadsRun(*this, call, laid)();
}

// The call in the middle, and the rows that are packed before a hop and unpacked behind it.
Result<Estimate> AttentionHeads::estimate(const Call& call) const {
  LATHE_ASSIGN(const Laid laid, lay_out(call));
  LATHE_ASSIGN(Estimate out, part_->work().estimate(inner_call(call, laid)));
  for (const Traveller& each : travellers_) {
    const int64_t tokens = call.extents[token_letter(each.keys)];
    const int64_t heads = heads_of(each, laid.share) * group_->world();
    out.cost.bytes += 2 * static_cast<uint64_t>(tokens * laid.batch * heads * width_of(each) *
                                                element_bytes(each));
  }
  out.launches += 2;
  return out;
}

}  // namespace

Result<HeadShare> head_share(int64_t heads, int64_t kv_heads, int world) {
  HeadShare out;
  const bool whole = kv_heads % world == 0;
  const bool repeated = kv_heads > 0 && world % kv_heads == 0;
  const bool fits =
      (heads == kUnknown || heads % world == 0) && (kv_heads == kUnknown || whole || repeated);
  if (!fits || heads == kUnknown || kv_heads == kUnknown) {
    return invalid(text("exchanged heads: q has H = ", heads, " and k has HK = ", kv_heads,
                        ", the group has ", world,
                        " ranks; allowed are H that are multiples of that, with HK that are "
                        "multiples or divide it"));
  }
  out.q_heads = heads / world;
  out.kv_heads = whole ? kv_heads / world : 1;
  out.repeat = whole ? 1 : world / kv_heads;
  return out;
}

Result<std::unique_ptr<Work>> make_attention_heads(const lathe_problem& problem,
                                                   const AttentionRequest& request,
                                                   const Extents& promised,
                                                   const DeviceFacts& facts, Group* group) {
  auto work = std::make_unique<AttentionHeads>(problem, request, group);
  LATHE_TRY(work->split(problem));
  LATHE_TRY(work->make_part(problem, promised, facts));
  return std::unique_ptr<Work>(std::move(work));
}

}  // namespace lathe
