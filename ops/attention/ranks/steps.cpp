// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses the steps of a request, and builds their calls.
#include "ops/attention/ranks/steps.h"

#include "collective/plans/attention_rounds.h"

namespace lathe {
namespace {

constexpr int64_t kRangeWords = sizeof(AttentionRange) / sizeof(int32_t);

void put(const Part& part, Call* call, int tensor, const TokenRows& rows) {
  part.put(call, tensor, rows.data, {rows.batch, rows.tokens, rows.heads, rows.width},
           {rows.batch_stride, rows.token_stride, rows.head_stride, 1});
}

void put_numbers(const Part& part, Call* call, int tensor, const void* data,
                 const TokenRows& rows) {
  part.put(call, tensor, data, {rows.batch, rows.heads, rows.tokens});
}

void put_inputs(const Part& part, const BlockInputs& in, const AttentionRequest& request,
                const Call& of, Call* call) {
  namespace to = attention_block_inputs;
  put(part, call, to::q, in.q);
  put(part, call, to::k, in.keys.k);
  put(part, call, to::v, in.keys.v);
  part.put(call, to::ranges, in.ranges, {in.range_count, kRangeWords});
  if (in.range_sequences) part.put(call, to::range_batch, in.range_sequences, {in.range_count});
  for (size_t i = 0; i < request.captured.size(); ++i) {
    if (request.captured[i] < 0) continue;
    const Tensor& capture = of.tensors[request.captured[i]];
    part.put(call, to::capture_0 + static_cast<int>(i), capture.data, {capture.extent[0]});
  }
  if (!request.problem.alibi) return;
  if (in.slopes_batch_stride != 0) {
    part.put(call, to::alibi_slopes, in.slopes, {in.q.batch, in.q.heads},
             {in.slopes_batch_stride, 1});
  } else {
    part.put(call, to::alibi_slopes, in.slopes, {in.q.heads});
  }
}

}  // namespace

Status AttentionSteps::make(const AttentionRequest& whole, const DeviceFacts& facts, bool rounds) {
  request_ = whole;
  const AttentionProblem& asked = whole.problem;
  if (asked.forward) {
    AttentionBlockRequest step = block_step(whole);
    const char* op = "flash_attention_block";
    if (rounds) {
      LATHE_ASSIGN(next, Part::make(op, make_attention_block(step, facts)));
    }
    step.first = true;
    LATHE_ASSIGN(first, Part::make(op, make_attention_block(step, facts)));
  }
  if (asked.forward && (asked.sinks || asked.element != Dtype::f32)) {
    LATHE_ASSIGN(finish, Part::make("lse_merge", make_lse_merge(merge_step(whole), true)));
  }
  if (asked.backward || asked.dsinks) {
    LATHE_ASSIGN(delta, Part::make("flash_attention_delta",
                                   make_attention_delta(delta_step(whole), true, facts)));
  }
  if (!asked.backward) return {};
  AttentionBlockRequest step = block_step(whole);
  const char* op = "flash_attention_block_bwd";
  step.first_keys = rounds;
  LATHE_ASSIGN(gradients_next, Part::make(op, make_attention_block_bwd(step, facts)));
  if (!rounds) return {};
  step.first = true;
  LATHE_ASSIGN(gradients_first, Part::make(op, make_attention_block_bwd(step, facts)));
  return {};
}

std::vector<const Part*> AttentionSteps::all() const {
  std::vector<const Part*> out;
  for (const auto* part : {&first, &next, &finish, &delta, &gradients_first, &gradients_next}) {
    if (*part) out.push_back(part->get());
  }
  return out;
}

void AttentionSteps::put_forward(const Part& step, const BlockInputs& in, const TokenRows& out_rows,
                                 const void* lse_data, const Call& of, Call* call) const {
  using namespace attention_block;
  put_inputs(step, in, request_, of, call);
  put(step, call, out, out_rows);
  put_numbers(step, call, lse, lse_data, out_rows);
}

void AttentionSteps::put_finish(const TokenRows& out, const void* lse, const TokenRows& rounded,
                                const Call& of, Call* call) const {
  put(*finish, call, lse_merge::out, out);
  put_numbers(*finish, call, lse_merge::lse, lse, out);
  if (request_.problem.sinks) {
    finish->put(call, lse_merge::sinks, of.tensors[attention::sinks].data, {out.heads});
  }
  if (request_.problem.element != Dtype::f32) put(*finish, call, lse_merge::rounded, rounded);
}

void AttentionSteps::put_delta(const Delta& rows, const Call& of, Call* call) const {
  namespace to = attention_delta;
  put(*delta, call, to::out, rows.out);
  put(*delta, call, to::dout, rows.dout);
  put_numbers(*delta, call, to::lse, rows.lse, rows.out);
  put_numbers(*delta, call, to::delta, rows.delta, rows.out);
  if (request_.problem.dlse) put_numbers(*delta, call, to::dlse, rows.dlse, rows.out);
  if (!request_.problem.dsinks) return;
  delta->put(call, to::sinks, of.tensors[attention::sinks].data, {rows.out.heads});
  delta->put(call, to::dsinks, rows.dsinks, {rows.out.heads});
}

void AttentionSteps::put_gradients(const Part& step, const BlockInputs& in, const Gradients& rows,
                                   const Call& of, Call* call) const {
  using namespace attention_block_bwd;
  put_inputs(step, in, request_, of, call);
  put(step, call, dout, rows.dout);
  put_numbers(step, call, lse, rows.lse, rows.dout);
  put_numbers(step, call, attention_block_bwd::delta, rows.delta, rows.dout);
  put(step, call, dq, rows.dq);
  put(step, call, dk, rows.sums.k);
  put(step, call, dv, rows.sums.v);
}

}  // namespace lathe
