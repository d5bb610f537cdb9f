// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by dispatch: what a problem needs, what a shard's lengths say, and where everything
// lies. Rows of a batch have equal lengths, so one plan serves them all, and they travel together.
#include "ops/attention/ranks/dispatch.h"

#include <charconv>

#include "codegen/base/invalid.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

namespace att = attention;

// What a byte to another rank costs in operations of matrix units: half of what an H100 is
// published with in 16 bits, over the 50 GB/s of a network card.
constexpr int64_t kOperationsOfByte = 8000;

Status unsupported(std::string what) { return Status(Code::unsupported, std::move(what)); }

int64_t option_number(const lathe_problem& problem, const char* name) {
  const std::string value = problem.option(name);
  int64_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return number;
}

Status check_covered(const AttentionRequest& request) {
  if (!request.alibi_rows || !request.problem.packed) return {};
  return unsupported("alibi_slopes are [B,H]; with LATHE_DISPATCH and cu_seqlens_q allowed is [H]");
}

// What a block step takes as the whole does: options, texts and what they read.
Status copy_scores(const lathe_problem& from, const AttentionRequest& request, lathe_problem& to) {
  for (const char* name : {"softmax_scale", "causal", "window_left", "window_right", "softcap",
                           "scalar_0", "scalar_1", "scalar_2", "scalar_3", "sm_margin"}) {
    LATHE_TRY(set_option(to, name, from.option(name)));
  }
  to.snippets = from.snippets;
  static constexpr const char* kCaptures[] = {"capture_0", "capture_1", "capture_2", "capture_3"};
  for (size_t i = 0; i < std::size(kCaptures); ++i) {
    if (request.captured[i] < 0) continue;
    const Declared& capture = from.tensors[request.captured[i]];
    LATHE_TRY(declare(to, kCaptures[i], capture.dtype, {capture.extents[0]}));
  }
  return {};
}

bool is_compact(const Tensor& tensor, bool packed, int64_t heads, int64_t width) {
  const int token = packed ? 0 : 1;
  return tensor.stride[token] == heads * width && tensor.stride[token + 1] == width;
}

}  // namespace

Result<std::unique_ptr<const Prepared>> DispatchPrepared::make(const Device& device,
                                                               const lathe_shard& shard,
                                                               DispatchPlan plan, int tensors) {
  auto out = std::make_unique<DispatchPrepared>();
  const int rank = shard.rank, world = shard.layout.world();
  const auto route = [&](const Moves& moves) {
    return RowRoute::make(device, moves_of_rank(moves, rank, plan.packs));
  };
  LATHE_ASSIGN(out->queries_there, route(plan.queries));
  LATHE_ASSIGN(out->queries_back, route(reversed(plan.queries)));
  LATHE_ASSIGN(out->keys_there, route(plan.keys));
  LATHE_ASSIGN(out->gradients, route(plan.gradients));
  const auto& pairs = plan.pairs[rank];
  static_assert(sizeof(PairRow) == 7 * sizeof(int32_t));
  LATHE_ASSIGN(out->pairs, table_of(device, {reinterpret_cast<const int32_t*>(pairs.data()),
                                             7 * pairs.size()}));
  const DispatchSum sum = dispatch_sum(plan, rank, shard.layout.key_tokens(rank));
  LATHE_ASSIGN(out->documents, table_of(device, plan.documents[rank]));
  LATHE_ASSIGN(out->sum_first, table_of(device, sum.first));
  LATHE_ASSIGN(out->sum_terms, table_of(device, sum.terms));
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    out->shares.sends.push_back({peer, rank, 1});
    out->shares.receives.push_back({peer, peer, 1});
  }
  size_t most = 2 * out->shares.sends.size();
  for (const RowRoute* each : {&out->queries_there, &out->keys_there, &out->gradients}) {
    most += (each->moves.sends.size() + each->moves.receives.size()) * tensors;
  }
  out->sends.resize(most), out->receives.resize(most);
  out->queries = plan.query_tokens[rank], out->keys = plan.key_tokens[rank];
  out->plan = std::move(plan);
  return std::unique_ptr<const Prepared>(std::move(out));
}

AttentionDispatch::AttentionDispatch(const lathe_problem& problem, const AttentionRequest& request,
                                     Group* group)
    : request_(request),
      group_(group),
      reduces_((problem.group_flags & LATHE_REDUCE_PARAMETER_GRADS) != 0),
      narrow_((problem.group_flags & LATHE_NARROW_GRADIENTS) != 0 &&
              request.problem.element != Dtype::f32) {
  const int64_t element = bytes_of(request.problem.element);
  const int64_t width = request.problem.head_dim, values = request.problem.value_dim;
  const auto add = [&](int tensor, bool keys, int64_t columns) {
    if (!problem.has(tensor)) return;
    const bool rows = columns == 1;
    tensors_.push_back({tensor, keys, rows, !problem.writes(tensor), columns, rows ? 4 : element});
  };
  add(att::q, false, width), add(att::k, true, width), add(att::v, true, values);
  add(att::dout, false, values), add(att::dlse, false, 1);
  add(att::out, false, values), add(att::lse, false, 1);
  add(att::dq, false, width);
}

Status AttentionDispatch::plan_with(const lathe_problem& problem, const Extents& promised) {
  const int64_t heads = promised[Letter::H], kv_heads = promised[Letter::HK];
  if (heads == kUnknown || kv_heads == kUnknown) {
    return invalid(text("q has H = ", heads, " and k has HK = ", kv_heads,
                        "; LATHE_DISPATCH plans with them, so they must be given"));
  }
  const AttentionProblem& asked = request_.problem;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const int64_t element = bytes_of(asked.element), both = asked.backward ? 2 : 1;
  rules_.limits.q_bytes = heads * (width + values) * element * both;
  rules_.limits.kv_bytes = kv_heads * (width + values) * element;
  rules_.limits.visible = {request_.window_left, request_.window_right};
  rules_.pair_cost = 2 * heads * ((width + values) + (asked.backward ? 3 * width + 2 * values : 0));
  rules_.byte_cost = kOperationsOfByte;
  const std::string choice = problem.option("dispatch");
  if (choice == "always") rules_.choice = DispatchChoice::always;
  if (choice == "home") rules_.choice = DispatchChoice::home;
  rules_.most_tokens = option_number(problem, "dispatch_tokens");
  return {};
}

Status AttentionDispatch::make_parts(const lathe_problem& problem, const DeviceFacts& facts) {
  const AttentionProblem& asked = request_.problem;
  const Dtype element = asked.element, f32 = Dtype::f32;
  const int64_t any = kUnknown, width = asked.head_dim, values = asked.value_dim;
  const auto declare_inputs = [&](lathe_problem& p) -> Status {
    LATHE_TRY(declare(p, "q", element, {any, any, any, width}));
    LATHE_TRY(declare(p, "k", element, {any, any, any, width}));
    LATHE_TRY(declare(p, "v", element, {any, any, any, values}));
    LATHE_TRY(declare(p, "pairs", Dtype::i32, {any, 7}));
    if (names_documents()) LATHE_TRY(declare(p, "pair_batch", Dtype::i32, {any}));
    LATHE_TRY(copy_scores(problem, request_, p));
    if (!asked.alibi) return {};
    if (request_.alibi_rows) return declare(p, "alibi_slopes", f32, {any, any});
    return declare(p, "alibi_slopes", f32, {any});
  };
  if (forward()) {
    LATHE_ASSIGN(step_, Part::make("flash_attention_block", facts, [&](lathe_problem& p) -> Status {
                   LATHE_TRY(declare_inputs(p));
                   LATHE_TRY(declare(p, "out", f32, {any, any, any, values}));
                   LATHE_TRY(declare(p, "lse", f32, {any, any, any}));
                   return set_option(p, "first", "1");
                 }));
  }
  if (forward() && (asked.sinks || rounds())) {
    LATHE_ASSIGN(merge_, Part::make("lse_merge", facts, [&](lathe_problem& p) -> Status {
                   LATHE_TRY(declare(p, "out", f32, {any, any, any, values}));
                   LATHE_TRY(declare(p, "lse", f32, {any, any, any}));
                   if (asked.sinks) LATHE_TRY(declare(p, "sinks", f32, {any}));
                   if (!rounds()) return {};
                   return declare(p, "rounded", element, {any, any, any, values});
                 }));
  }
  if (asked.backward || asked.dsinks) {
    LATHE_ASSIGN(delta_,
                 Part::make("flash_attention_delta", facts, [&](lathe_problem& p) -> Status {
                   LATHE_TRY(declare(p, "out", element, {any, any, any, values}));
                   LATHE_TRY(declare(p, "dout", element, {any, any, any, values}));
                   LATHE_TRY(declare(p, "lse", f32, {any, any, any}));
                   LATHE_TRY(declare(p, "delta", f32, {any, any, any}));
                   if (asked.dlse) LATHE_TRY(declare(p, "dlse", f32, {any, any, any}));
                   if (!asked.dsinks) return {};
                   LATHE_TRY(declare(p, "sinks", f32, {any}));
                   return declare(p, "dsinks", f32, {any});
                 }));
  }
  if (asked.backward) {
    LATHE_ASSIGN(gradient_,
                 Part::make("flash_attention_block_bwd", facts, [&](lathe_problem& p) -> Status {
                   LATHE_TRY(declare_inputs(p));
                   LATHE_TRY(declare(p, "dout", element, {any, any, any, values}));
                   LATHE_TRY(declare(p, "lse", f32, {any, any, any}));
                   LATHE_TRY(declare(p, "delta", f32, {any, any, any}));
                   LATHE_TRY(declare(p, "dq", f32, {any, any, any, width}));
                   LATHE_TRY(declare(p, "dk", f32, {any, any, any, width}));
                   LATHE_TRY(declare(p, "dv", f32, {any, any, any, values}));
                   return set_option(p, "deterministic", problem.option("deterministic"));
                 }));
  }
  add(move_rows_spec(16), &kernels_.wide);
  add(move_rows_spec(4), &kernels_.narrow);
  for (const auto* part : {&step_, &merge_, &delta_, &gradient_}) add(part->get());
  if (asked.backward && rounds()) add(sum_rows_spec(Dtype::f32, element, false), &round_);
  if (keys_have_gradients()) {
    add(sum_rows_spec(narrow_ ? element : Dtype::f32, element, true), &add_keys_);
  }
  if (asked.dsinks) add(sum_rows_spec(Dtype::f32, Dtype::f32, false), &add_sinks_);
  return {};
}

Result<std::unique_ptr<Work>> AttentionDispatch::make(const lathe_problem& problem,
                                                      const AttentionRequest& request,
                                                      const Extents& promised,
                                                      const DeviceFacts& facts, Group* group) {
  LATHE_TRY(check_covered(request));
  std::unique_ptr<AttentionDispatch> work(new AttentionDispatch(problem, request, group));
  LATHE_TRY(work->plan_with(problem, promised));
  LATHE_TRY(work->make_parts(problem, facts));
  return std::unique_ptr<Work>(std::move(work));
}

Result<std::unique_ptr<const Prepared>> AttentionDispatch::prepare(const lathe_shard& shard) const {
  DispatchRules rules = rules_;
  rules.limits.align = dispatch_alignment(shard.layout.length, shard.layout.world());
  LATHE_ASSIGN(DispatchPlan plan, plan_dispatch(shard.layout, rules));
  const int tensors = static_cast<int>(tensors_.size());
  return DispatchPrepared::make(group_->device(), shard, std::move(plan), tensors);
}

Status AttentionDispatch::lay_out(const Call& call, const DispatchTensor& each, DispatchLaid* laid,
                                  Sections* sections) const {
  const DispatchPrepared& prepared = *laid->prepared;
  const Layout& layout = call.shard->layout;
  const int64_t heads = each.keys ? laid->kv_heads : laid->heads;
  const int64_t row = laid->batch * heads * each.width * each.bytes;
  const RowRoute& route = each.keys    ? prepared.keys_there
                          : each.there ? prepared.queries_there
                                       : prepared.queries_back;
  DispatchSpot& spot = laid->spots[each.tensor];
  spot.direct = !each.rows && laid->batch == 1 &&
                is_compact(call.tensors[each.tensor], packed(), heads, each.width);
  if (!spot.direct) {
    const int rank = call.shard->rank;
    const int64_t tokens = each.keys ? layout.key_tokens(rank) : layout.query_tokens(rank);
    LATHE_TRY(sections->add({tokens, row}, &spot.home));
  }
  if (route.send_rows.data()) LATHE_TRY(sections->add({route.moves.sent(), row}, &spot.sent));
  if (route.receive_rows.data()) {
    LATHE_TRY(sections->add({route.moves.received(), row}, &spot.received));
  }
  const int64_t arrived = each.keys ? prepared.keys : prepared.queries;
  LATHE_TRY(sections->add({arrived, row}, &spot.far));
  return each.rows ? sections->add({arrived, row}, &spot.dense) : Status();
}

// What a step reads and writes beside what travels.
Status AttentionDispatch::lay_out_step(const Call& call, DispatchLaid* laid,
                                       Sections* sections) const {
  const DispatchPrepared& prepared = *laid->prepared;
  const AttentionProblem& asked = request_.problem;
  const int64_t heads = laid->batch * laid->heads, kv_heads = laid->batch * laid->kv_heads;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const auto add = [&](bool there, std::initializer_list<int64_t> factors, int64_t* offset) {
    return there ? sections->add(factors, offset) : Status();
  };
  LATHE_TRY(add(forward() && rounds(), {prepared.queries, heads, values, 4}, &laid->out));
  LATHE_TRY(add(delta_ != nullptr, {prepared.queries, heads, 4}, &laid->delta));
  // In float32 they travel as they are.
  const bool dq_travels = !rounds() && request_.gradients.dq;
  laid->dq = laid->spots[att::dq].far;
  LATHE_TRY(add(asked.backward && !dq_travels, {prepared.queries, heads, width, 4}, &laid->dq));
  LATHE_TRY(add(asked.backward, {prepared.keys, kv_heads, width, 4}, &laid->dk));
  LATHE_TRY(add(asked.backward, {prepared.keys, kv_heads, values, 4}, &laid->dv));
  LATHE_TRY(add(asked.dsinks, {group_->world(), laid->padded_heads(), 4}, &laid->dsinks));
  LATHE_TRY(add(asked.dsinks, {laid->padded_heads(), 4}, &laid->dsinks_sum));

  const int64_t slots = prepared.plan.slot_tokens[call.shard->rank];
  const int64_t bytes = narrow_ ? bytes_of(asked.element) : 4;
  const bool wanted[] = {request_.gradients.dk, request_.gradients.dv};
  for (const int i : {0, 1}) {
    if (!wanted[i]) continue;
    const int64_t columns = i == 0 ? width : values;
    DispatchSpot& spot = laid->spots[i == 0 ? att::dk : att::dv];
    spot.far = i == 0 ? laid->dk : laid->dv;
    const int64_t row = kv_heads * columns * bytes;
    LATHE_TRY(add(narrow_, {prepared.keys, row}, &spot.far));
    LATHE_TRY(add(prepared.gradients.send_rows.data() != nullptr,
                  {prepared.gradients.moves.sent(), row}, &spot.sent));
    LATHE_TRY(add(true, {slots, row}, &spot.received));
  }
  return {};
}

Result<DispatchLaid> AttentionDispatch::lay_out(const Call& call) const {
  DispatchLaid laid;
  laid.prepared = static_cast<const DispatchPrepared*>(call.prepared);
  if (laid.prepared == nullptr) {
    return invalid("the shard was not prepared for this plan (lathe_shard_prepare)");
  }
  laid.batch = packed() ? 1 : call.extents[Letter::B];
  laid.heads = call.extents[Letter::H], laid.kv_heads = call.extents[Letter::HK];
  LATHE_TRY(check_heads(laid.heads, laid.kv_heads));
  Sections sections;
  for (const DispatchTensor& each : tensors_) LATHE_TRY(lay_out(call, each, &laid, &sections));
  LATHE_TRY(lay_out_step(call, &laid, &sections));
  size_t inner = 0;
  const auto needs = [&](const std::unique_ptr<Part>& part, const Call& of) -> Status {
    LATHE_ASSIGN(const size_t bytes, part->work().workspace_bytes(of));
    inner = std::max(inner, bytes);
    return {};
  };
  if (step_) LATHE_TRY(needs(step_, step_call(call, laid)));
  if (merge_) LATHE_TRY(needs(merge_, merge_call(call, laid)));
  if (delta_) LATHE_TRY(needs(delta_, delta_call(call, laid)));
  if (gradient_) LATHE_TRY(needs(gradient_, gradient_call(call, laid)));
  LATHE_TRY(sections.add({static_cast<int64_t>(inner)}, &laid.inner, &laid.inner_bytes));
  laid.total = sections.total();
  return laid;
}

Result<size_t> AttentionDispatch::workspace_bytes(const Call& call) const {
  LATHE_ASSIGN(const DispatchLaid laid, lay_out(call));
  return laid.total;
}

}  // namespace lathe
