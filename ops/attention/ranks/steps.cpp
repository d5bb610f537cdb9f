// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses the steps of a request, and builds their calls.
#include "ops/attention/ranks/steps.h"

#include "collective/plans/attention_rounds.h"

namespace lathe {
namespace {

constexpr int64_t kRangeWords = sizeof(AttentionRange) / sizeof(int32_t);

void put(const RankStep& step, Call* call, int tensor, const TokenRows& rows) {
  step.put(call, tensor, rows.data, {rows.batch, rows.tokens, rows.heads, rows.width},
           {rows.batch_stride, rows.token_stride, rows.head_stride, 1});
}

}  // namespace

Status AttentionSteps::make(const AttentionRequest& whole, const DeviceFacts& facts, bool rounds) {
  request_ = whole;
  const AttentionProblem& asked = whole.problem;
  const auto set = [](AttentionStep* step, const char* op, MadeExecutor executor) -> Status {
    LATHE_ASSIGN(static_cast<RankStep&>(*step), RankStep::make(op, std::move(executor)));
    return {};
  };
  AttentionBlockRequest block = block_step(whole), whole_block = block;
  whole_block.first = true;
  if (asked.forward) {
    const char* op = "flash_attention_block";
    if (rounds) LATHE_TRY(set(&next, op, make_attention_block(block, facts)));
    LATHE_TRY(set(&first, op, make_attention_block(whole_block, facts)));
  }
  if (asked.forward && (asked.sinks || asked.element != Dtype::f32)) {
    LATHE_TRY(set(&finish, "lse_merge", make_lse_merge(merge_step(whole), true)));
  }
  if (asked.backward || asked.dsinks) {
    LATHE_TRY(
        set(&delta, "flash_attention_delta", make_attention_delta(delta_step(whole), true, facts)));
  }
  if (!asked.backward) return {};
  const char* op = "flash_attention_block_bwd";
  block.first_keys = whole_block.first_keys = rounds;
  LATHE_TRY(set(&gradients_next, op, make_attention_block_bwd(block, facts)));
  if (!rounds) return {};
  return set(&gradients_first, op, make_attention_block_bwd(whole_block, facts));
}

void AttentionSteps::put_inputs(const RankStep& step, const StepTensors& in, const Call& of,
                                Call* call) const {
  namespace to = attention_block_inputs;
  lathe::put(step, call, to::q, in.q);
  lathe::put(step, call, to::k, in.keys.k);
  lathe::put(step, call, to::v, in.keys.v);
  step.put(call, to::ranges, in.ranges, {in.range_count, kRangeWords});
  if (in.range_sequences) step.put(call, to::range_batch, in.range_sequences, {in.range_count});
  for (size_t i = 0; i < request_.captured.size(); ++i) {
    if (request_.captured[i] < 0) continue;
    const Tensor& capture = of.tensors[request_.captured[i]];
    step.put(call, to::capture_0 + static_cast<int>(i), capture.data, {capture.extent[0]});
  }
  if (!request_.problem.alibi) return;
  if (in.slopes_batch_stride != 0) {
    step.put(call, to::alibi_slopes, in.slopes, {in.q.batch, in.q.heads},
             {in.slopes_batch_stride, 1});
  } else {
    step.put(call, to::alibi_slopes, in.slopes, {in.q.heads});
  }
}

void AttentionSteps::put(const AttentionStep& step, const StepTensors& in, const Call& of,
                         Call* call) const {
  const AttentionProblem& asked = request_.problem;
  const auto rows = [&](int tensor, const TokenRows& data) {
    lathe::put(step, call, tensor, data);
  };
  const auto numbers = [&](int tensor, const void* data) {
    step.put(call, tensor, data, {in.q.batch, in.q.heads, in.q.tokens});
  };
  const auto by_head = [&](int tensor, const void* data) {
    step.put(call, tensor, data, {in.q.heads});
  };
  const char* const sinks = of.tensors[attention::sinks].data;
  switch (step.kind) {
    case Kind::forward: {
      put_inputs(step, in, of, call);
      rows(attention_block::out, in.partial), numbers(attention_block::lse, in.lse);
      return;
    }
    case Kind::finish: {
      rows(lse_merge::out, in.partial), numbers(lse_merge::lse, in.lse);
      if (asked.sinks) by_head(lse_merge::sinks, sinks);
      if (asked.element != Dtype::f32) rows(lse_merge::rounded, in.out);
      return;
    }
    case Kind::delta: {
      namespace to = attention_delta;
      rows(to::out, in.out), rows(to::dout, in.dout);
      numbers(to::lse, in.lse), numbers(to::delta, in.delta);
      if (asked.dlse) numbers(to::dlse, in.dlse);
      if (asked.dsinks) by_head(to::sinks, sinks), by_head(to::dsinks, in.dsinks);
      return;
    }
    case Kind::gradients: {
      namespace to = attention_block_bwd;
      put_inputs(step, in, of, call);
      rows(to::dout, in.dout), rows(to::dq, in.dq);
      rows(to::dk, in.sums.k), rows(to::dv, in.sums.v);
      numbers(to::lse, in.lse), numbers(to::delta, in.delta);
      return;
    }
  }
}

}  // namespace lathe
