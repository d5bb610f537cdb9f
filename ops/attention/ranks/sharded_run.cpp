// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the parts of a call that a ring and gathered keys share: the workspace, the calls of
// the steps, sums of gradients, the estimate.
#include <algorithm>

#include "collective/exchange.h"
#include "ops/attention/ranks/sharded.h"
#include "ops/row_kernels.h"
#include "templates/params/rows.h"

namespace lathe {

namespace att = attention;

ShardedRun::ShardedRun(const ShardedAttention& program, const Call& call)
    : RankRun(*program.group, call),
      program_(program),
      tables_(static_cast<const RoundTables&>(*call.shard_state)),
      rounds_(tables_.rounds),
      batch_(problem().packed ? 1 : call.extents[Dim::B]),
      heads_(call.extents[Dim::H]),
      kv_heads_(call.extents[Dim::HK]),
      rows_(rounds_.query_tokens),
      all_{.batch = batch_, .heads = heads_, .kv_heads = kv_heads_} {}

Status ShardedRun::walk(Mode mode) {
  mode_ = mode;
  const AttentionSteps& steps = program_.steps;
  if (problem().forward) {
    LATHE_TRY(exchange_.joined(forward()));
    if (steps.finish) LATHE_TRY(run(steps.finish, tensors(all_, 0)));
  }
  if (!steps.delta) return {};
  LATHE_TRY(run(steps.delta, tensors(all_, 0)));
  if (mode == Mode::run && problem().dsinks && (program_.flags & kReduceParameterGrads)) {
    LATHE_TRY(all_reduce_f32(group_, call_.tensors[att::dsinks].data, static_cast<size_t>(heads_),
                             call_.stream));
  }
  if (!problem().backward) return {};
  LATHE_TRY(exchange_.joined(backward()));
  if (!program_.request.gradients.dq) return {};
  const TokenRows dq = float_rows(all_, at(workspace_.dq), problem().head_dim);
  return sum(dq.data, nullptr, tables_.own_sum, given(all_, att::dq), 4 + element_bytes());
}

Result<Estimate> ShardedRun::estimate() {
  LATHE_TRY(walk(Mode::count));
  return counted_;
}

// Slices of the call, and the tensors in them.

int64_t ShardedRun::slices() const {
  const int64_t each = program_.request.options.gather_heads;
  const int64_t groups = each == 0 ? 1 : (kv_heads_ + each - 1) / each;
  return groups > 1 && batch_ > 0 ? batch_ * groups : 1;
}

Slice ShardedRun::slice(int64_t index) const {
  if (slices() == 1) return all_;
  const int64_t each = program_.request.options.gather_heads, ratio = heads_ / kv_heads_;
  const int64_t groups = slices() / batch_, kv_head = index % groups * each;
  const int64_t kv_heads = std::min(each, kv_heads_ - kv_head);
  return {index, index / groups, kv_head * ratio, kv_head, 1, kv_heads * ratio, kv_heads};
}

TokenRows ShardedRun::given(const Slice& slice, int tensor) const {
  const bool keys = tensor == att::k || tensor == att::v || tensor == att::dk || tensor == att::dv;
  TokenRows out = rows_of(call_.tensors[tensor], problem().packed);
  out.batch = slice.batch, out.heads = keys ? slice.kv_heads : slice.heads;
  const int64_t head = keys ? slice.kv_head : slice.head;
  const int64_t begin = slice.row * out.batch_stride + head * out.head_stride;
  if (out.data) out.data += begin * element_bytes();
  return out;
}

TokenRows ShardedRun::float_rows(const Slice& slice, char* data, int64_t width) const {
  TokenRows out = dense_rows(data, batch_, rows_, heads_, width);
  out.batch = slice.batch, out.heads = slice.heads;
  out.data += (slice.row * out.batch_stride + slice.head * out.head_stride) * 4;
  return out;
}

char* ShardedRun::row_values(const Slice& slice, char* data) const {
  return data ? data + (slice.row * heads_ + slice.head) * rows_ * 4 : nullptr;
}

KeyBlock ShardedRun::block(const Slice& slice, const KeySection& section, int64_t tokens) const {
  KeyBlock out;
  out.element_bytes = section.element_bytes;
  char* const data = at(section.offset);
  out.k = dense_rows(data, slice.batch, tokens, slice.kv_heads, problem().head_dim);
  out.v = dense_rows(data + out.k.elements() * out.element_bytes, slice.batch, tokens,
                     slice.kv_heads, problem().value_dim);
  return out;
}

KeyBlock ShardedRun::own_keys(const Slice& slice) const {
  return {given(slice, att::k), given(slice, att::v), element_bytes()};
}

KeyBlock ShardedRun::sent_keys(const Slice& slice) const {
  if (!packs_) return own_keys(slice);
  return block(slice, workspace_.packed[slice.index % 2], tables_.own_tokens());
}

// The workspace.

KeySection ShardedRun::key_section(const Slice& slice, int64_t tokens, int64_t element_bytes) {
  return {section({slice.batch * tokens, slice.kv_heads, problem().head_dim + problem().value_dim,
                   element_bytes}),
          element_bytes};
}

Status ShardedRun::lay_out() {
  const int64_t rows = batch_ * rows_ * heads_;
  if (problem().forward && problem().element != Dtype::f32) {
    workspace_.out = section({rows, problem().value_dim, 4});
  }
  if (program_.steps.delta) workspace_.delta = section({rows, 4});
  if (problem().backward) workspace_.dq = section({rows, problem().head_dim, 4});
  const Slice widest = slice(0);
  const KeyBlock own = own_keys(widest);
  packs_ = tables_.sends_keys && (!own.k.is_dense() || !own.v.is_dense());
  for (int i = 0; packs_ && i < (slices() > 1 ? 2 : 1); ++i) {
    workspace_.packed[i] = key_section(widest, tables_.own_tokens(), element_bytes());
  }
  lay_out_keys(widest);
  LATHE_TRY(walk(Mode::reserve));
  return lay_out_steps();
}

// The steps.

StepTensors ShardedRun::tensors(const Slice& slice, int round, const KeyBlock& sums) const {
  const auto& t = call_.tensors;
  StepTensors out;
  out.q = given(slice, att::q), out.keys = keys_of(slice, round);
  out.ranges = tables_.ranges(round);
  out.range_count = static_cast<int64_t>(at_round(round).ranges.size());
  if (program_.names_sequences()) out.range_sequences = tables_.range_sequences(round);
  if (problem().alibi) {
    const bool by_row = program_.request.alibi_rows;
    const int64_t first = (by_row ? slice.row * heads_ : 0) + slice.head;
    out.slopes = t[att::alibi_slopes].data + first * 4;
    out.slopes_batch_stride = by_row ? heads_ : 0;
  }
  out.out = given(slice, att::out);
  out.lse = row_values(slice, t[att::lse].data);
  const bool rounds = problem().element != Dtype::f32;
  if (problem().forward) {
    out.partial = rounds ? float_rows(slice, at(workspace_.out), problem().value_dim) : out.out;
  }
  if (!program_.steps.delta) return out;
  out.dout = given(slice, att::dout), out.dlse = row_values(slice, t[att::dlse].data);
  out.delta = row_values(slice, at(workspace_.delta));
  out.dsinks = t[att::dsinks].data;
  out.dq = float_rows(slice, at(workspace_.dq), problem().head_dim);
  out.sums = sums;
  return out;
}

Status ShardedRun::run(const AttentionStep& step, const StepTensors& in, double visible) {
  Call call = step_call();
  program_.steps.put(step, in, call_, &call);
  if (mode_ == Mode::reserve) return reserve(*step, call);
  if (mode_ == Mode::run) return step->run(call);
  LATHE_ASSIGN(const Estimate one, step->estimate(call));
  counted_.launches += one.launches;
  counted_.cost.minimum_bytes += one.cost.minimum_bytes;
  counted_.cost.bytes += one.cost.bytes;
  counted_.cost.flops += static_cast<uint64_t>(static_cast<double>(one.cost.flops) * visible);
  return {};
}

Status ShardedRun::run_round(const AttentionStep& step, const Slice& slice, int round,
                             const KeyBlock& sums) {
  if (round > 0 && at_round(round).ranges.empty()) return {};
  const StepTensors in = tensors(slice, round, sums);
  const double pairs = static_cast<double>(rows_) * static_cast<double>(in.keys.k.tokens);
  return run(step, in, pairs > 0 ? static_cast<double>(at_round(round).visible) / pairs : 0);
}

Status ShardedRun::attend(const Slice& slice, int round) {
  return run_round(program_.steps.forward(round == 0), slice, round, {});
}

Status ShardedRun::differentiate(const Slice& slice, int round, bool first, const KeyBlock& sums) {
  return run_round(program_.steps.gradients(first), slice, round, sums);
}

void ShardedRun::count(const Hop& hop) {
  if (is_empty(hop)) return;
  ++counted_.exchanges;
  for (const Transfer& sent : hop.sends) counted_.exchange_bytes += sent.total();
}

bool ShardedRun::launches(int64_t bytes) {
  if (mode_ == Mode::count && bytes > 0) {
    ++counted_.launches;
    counted_.cost.bytes += static_cast<uint64_t>(bytes);
    counted_.cost.minimum_bytes += static_cast<uint64_t>(bytes);
  }
  return mode_ == Mode::run;
}

// Rows that are copied, added and rounded.

Status ShardedRun::pack_keys(const Slice& slice) {
  if (!packs_) return {};
  const KeyBlock from = own_keys(slice), to = sent_keys(slice);
  const auto pack = [&](const TokenRows& rows, const TokenRows& packed) -> Status {
    if (!launches(rows.elements() * 2 * element_bytes())) return {};
    return copy_rows(program_.copy_rows, rows, packed, rows, {nullptr, rows.tokens},
                     element_bytes(), call_.stream);
  };
  LATHE_TRY(pack(from.k, to.k));
  return pack(from.v, to.v);
}

Status ShardedRun::sum(const char* own, const char* others, const RoundTables::Terms& terms,
                       const TokenRows& to, int64_t bytes) {
  if (!launches(to.elements() * bytes)) return {};
  const VectorSlot& kernel = program_.sum_parts;
  const int64_t vector = kernel.numbers().vector;
  SumPartsParams p = {};
  p.own = own;
  p.parts = others;
  p.places = tables_.table.data() + terms.offset;
  p.out = to.data;
  p.own_batch_stride = to.tokens * to.heads * to.width;
  p.out_batch_stride = to.batch_stride;
  p.out_token_stride = to.token_stride;
  p.out_head_stride = to.head_stride;
  p.part_tokens = others ? terms.tokens : 0;
  p.cells = static_cast<int>(to.batch * to.tokens);
  p.batch = static_cast<int>(to.batch);
  p.tokens = static_cast<int>(to.tokens);
  p.heads = static_cast<int>(to.heads);
  p.vectors = static_cast<int>(to.width / vector);
  p.count = terms.count;
  p.lane_bits = lane_bits_of(*kernel, int64_t{p.heads} * p.vectors);
  return kernel.launch(row_blocks(*kernel, p.cells, p.lane_bits), &p, call_.stream);
}

Status ShardedRun::round(const KeyBlock& from, const KeyBlock& to) {
  const int64_t bytes = 4 + travelling_bytes();
  LATHE_TRY(sum(from.k.data, nullptr, tables_.own_sum, to.k, bytes));
  return sum(from.v.data, nullptr, tables_.own_sum, to.v, bytes);
}

Status ShardedRun::give_keys(const Slice& slice, const KeyBlock& own, const KeyBlock& others,
                             const RoundTables::Terms& terms) {
  const int64_t bytes = travelling_bytes() + element_bytes();
  const AttentionGradients& wanted = program_.request.gradients;
  if (wanted.dk) {
    LATHE_TRY(sum(own.k.data, others.k.data, terms, given(slice, att::dk), bytes));
  }
  if (!wanted.dv) return {};
  return sum(own.v.data, others.v.data, terms, given(slice, att::dv), bytes);
}

}  // namespace lathe
