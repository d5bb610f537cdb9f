// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Where everything lies in a call of sharded attention, and the calls of its steps.
#include "ops/attention/ranks/sharded_run.h"

#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/attention/step_schema.h"

namespace lathe {
namespace {

constexpr int64_t kPairWords = sizeof(PairRow) / sizeof(int32_t);

// Whether rows lie as [batch, tokens, heads, width] without gaps.
bool is_dense(const TokenRows& rows, int64_t batch) {
  const int64_t row = rows.heads * rows.width;
  return (rows.heads < 2 || rows.head_stride == rows.width) &&
         (rows.tokens < 2 || rows.token_stride == row) &&
         (batch < 2 || rows.batch_stride == rows.tokens * row);
}

void put(const Part& part, Call* call, int tensor, const TokenRows& rows, int64_t batch) {
  part.put(call, tensor, rows.data, {batch, rows.tokens, rows.heads, rows.width},
           {rows.batch_stride, rows.token_stride, rows.head_stride, 1});
}

}  // namespace

AttentionRankRun::AttentionRankRun(const AttentionSharded& work, const Call& call)
    : work_(work),
      call_(call),
      tables_(static_cast<const AttentionTables&>(*call.prepared)),
      all_batch_(problem().packed ? 1 : call.extents[Letter::B]),
      all_heads_(call.extents[Letter::H]),
      all_kv_heads_(call.extents[Letter::HK]),
      rows_(tables_.rounds().query_tokens) {
  take_all();
}

int64_t AttentionRankRun::head_groups() const {
  const int64_t each = work_.gather_heads_;
  return each == 0 ? 1 : (all_kv_heads_ + each - 1) / each;
}

void AttentionRankRun::take_all() {
  slice_ = {};
  batch_ = all_batch_, heads_ = all_heads_, kv_heads_ = all_kv_heads_;
}

void AttentionRankRun::take(int64_t slice) {
  take_all();
  if (slices() == 1) return;
  const int64_t ratio = all_heads_ / all_kv_heads_;
  slice_.index = slice;
  slice_.row = slice / head_groups();
  slice_.kv_head = slice % head_groups() * work_.gather_heads_;
  slice_.head = slice_.kv_head * ratio;
  batch_ = 1;
  kv_heads_ = std::min(work_.gather_heads_, all_kv_heads_ - slice_.kv_head);
  heads_ = kv_heads_ * ratio;
}

TokenRows AttentionRankRun::given(int tensor) const {
  const Tensor& from = call_.tensors[tensor];
  const int first = problem().packed ? 0 : 1;
  const bool keys = tensor == attention::k || tensor == attention::v || tensor == attention::dk ||
                    tensor == attention::dv;
  TokenRows out;
  out.tokens = from.extent[first], out.heads = keys ? kv_heads_ : heads_;
  out.width = from.extent[first + 2];
  out.batch_stride = first ? from.stride[0] : 0;
  out.token_stride = from.stride[first], out.head_stride = from.stride[first + 1];
  const int64_t head = keys ? slice_.kv_head : slice_.head;
  const int64_t begin = slice_.row * out.batch_stride + head * out.head_stride;
  out.data = from.data ? from.data + begin * element() : nullptr;
  return out;
}

TokenRows AttentionRankRun::rows_at(int64_t offset, int64_t width) const {
  TokenRows out = dense(at(offset), rows_, all_heads_, width);
  out.heads = heads_;
  const int64_t begin = slice_.row * out.batch_stride + slice_.head * out.head_stride;
  if (out.data) out.data += begin * static_cast<int64_t>(sizeof(float));
  return out;
}

TokenRows AttentionRankRun::dense(char* data, int64_t tokens, int64_t heads, int64_t width) const {
  return {data, tokens, heads, width, tokens * heads * width, heads * width, width};
}

KeyBlock AttentionRankRun::block(int64_t offset, int64_t tokens, int64_t bytes) const {
  KeyBlock out;
  out.k = dense(at(offset), tokens, kv_heads_, problem().head_dim);
  const int64_t keys = batch_ * tokens * kv_heads_ * problem().head_dim * bytes;
  out.v = dense(at(offset + keys), tokens, kv_heads_, problem().value_dim);
  return out;
}

KeyBlock AttentionRankRun::own_keys() const { return {given(attention::k), given(attention::v)}; }

KeyBlock AttentionRankRun::sent_keys() const {
  return packs_ ? block(places_.packed[slice_.index % 2], own_tokens(), element()) : own_keys();
}

KeyBlock AttentionRankRun::ring_keys(int i) const {
  if (i == 0) return own_keys();
  return block(places_.blocks[i % 2], rounds().key_tokens[at_round(i).owner], element());
}

KeyBlock AttentionRankRun::gathered_keys() const {
  return block(places_.gathered[slice_.index % 2], tables_.gathered_tokens(), element());
}

TokenRows AttentionRankRun::partial_out() const {
  if (problem().element == Dtype::f32) return given(attention::out);
  return rows_at(places_.out, problem().value_dim);
}

bool AttentionRankRun::sends_own_keys() const {
  if (!work_.gathers()) return static_cast<bool>(at_round(0).send_keys);
  const auto& sends = rounds().send_keys;
  return std::any_of(sends.begin(), sends.end(), [](const KeyMessage& m) { return bool(m); });
}

Status AttentionRankRun::lay_out() {
  Sections sections;
  const int64_t rows = all_batch_ * rows_ * all_heads_;
  if (problem().forward && problem().element != Dtype::f32) {
    LATHE_TRY(sections.add({rows, problem().value_dim, 4}, &places_.out));
  }
  if (work_.backward()) LATHE_TRY(sections.add({rows, 4}, &places_.delta));
  if (problem().backward) LATHE_TRY(sections.add({rows, problem().head_dim, 4}, &places_.dq));
  take(0);  // no other is larger
  LATHE_TRY(lay_out_keys(&sections));
  if (problem().backward) LATHE_TRY(lay_out_backward(&sections));
  take_all();
  LATHE_ASSIGN(const size_t inner, inner_bytes());
  LATHE_TRY(sections.add({static_cast<int64_t>(inner)}, &places_.inner, &places_.inner_bytes));
  places_.total = sections.total();
  return {};
}

Status AttentionRankRun::add_keys_to(Sections* sections, int64_t tokens, int64_t bytes,
                                     int64_t* place) const {
  return sections->add(
      {batch_ * tokens, kv_heads_, problem().head_dim + problem().value_dim, bytes}, place);
}

// Two of what is filled for a later step while an earlier one reads.
Status AttentionRankRun::lay_out_keys(Sections* sections) {
  const KeyBlock own = own_keys();
  packs_ = sends_own_keys() && (!is_dense(own.k, batch_) || !is_dense(own.v, batch_));
  const int copies = slices() > 1 ? 2 : 1;
  for (int i = 0; packs_ && i < copies; ++i) {
    LATHE_TRY(add_keys_to(sections, own_tokens(), element(), &places_.packed[i]));
  }
  for (int i = 0; work_.gathers() && i < copies; ++i) {
    const int64_t all = tables_.gathered_tokens();
    LATHE_TRY(add_keys_to(sections, all, element(), &places_.gathered[i]));
  }
  if (work_.gathers() || count() == 1) return {};
  for (int64_t& place : places_.blocks) {
    LATHE_TRY(add_keys_to(sections, rounds().most_key_tokens, element(), &place));
  }
  return {};
}

Status AttentionRankRun::lay_out_backward(Sections* sections) {
  const auto keys = [&](int64_t tokens, int64_t bytes, int64_t* place) {
    return add_keys_to(sections, tokens, bytes, place);
  };
  const int64_t travelling = bytes_of(work_.travelling());
  if (work_.gathers()) {
    const int64_t all = tables_.gathered_tokens();
    LATHE_TRY(keys(all, 4, &places_.part));
    if (travelling != 4) LATHE_TRY(keys(all, travelling, &places_.owed));
    LATHE_TRY(keys(own_tokens(), 4, &places_.own));
    return keys(tables_.places(AttentionTables::kShares).tokens, travelling, &places_.shares);
  }
  const int64_t most = rounds().most_key_tokens;
  LATHE_TRY(keys(most, 4, &places_.part));
  LATHE_TRY(keys(most, travelling, &places_.sum));
  LATHE_TRY(keys(most, travelling, &places_.arriving));
  return keys(own_tokens(), travelling, &places_.home);
}

void AttentionRankRun::put_step(const Part& part, int i, const KeyBlock& keys,
                                const StepTensors& to, Call* call) const {
  call->stream = call_.stream;
  call->workspace = at(places_.inner);
  call->workspace_bytes = static_cast<size_t>(places_.inner_bytes);
  put(part, call, to.q, given(attention::q), batch_);
  put(part, call, to.k, keys.k, batch_);
  put(part, call, to.v, keys.v, batch_);
  const auto pairs = static_cast<int64_t>(at_round(i).pairs.size());
  part.put(call, to.pairs, tables_.pairs(i), {pairs, kPairWords});
  if (work_.names_sequences()) {
    part.put(call, to.pair_batch, tables_.pair_sequences(i), {pairs});
  }
  for (size_t c = 0; c < work_.request_.captured.size(); ++c) {
    if (work_.request_.captured[c] < 0) continue;
    const Tensor& capture = call_.tensors[work_.request_.captured[c]];
    part.put(call, to.capture_0 + static_cast<int>(c), capture.data, {capture.extent[0]});
  }
  if (!problem().alibi) return;
  const Tensor& slopes = call_.tensors[attention::alibi_slopes];
  const int64_t row = work_.request_.alibi_rows ? slice_.row * all_heads_ : 0;
  const char* data = slopes.data + (row + slice_.head) * static_cast<int64_t>(sizeof(float));
  if (work_.request_.alibi_rows) {
    part.put(call, to.alibi_slopes, data, {batch_, heads_}, {all_heads_, 1});
  } else {
    part.put(call, to.alibi_slopes, data, {heads_});
  }
}

Call AttentionRankRun::step_call(const Part& part, int i, const KeyBlock& keys) const {
  using namespace attention_block;
  Call call;
  put_step(part, i, keys, {q, k, v, pairs, pair_batch, alibi_slopes, capture_0}, &call);
  put(part, &call, out, partial_out(), batch_);
  part.put(&call, lse, row_values(call_.tensors[attention::lse].data), {batch_, heads_, rows_});
  return call;
}

Call AttentionRankRun::finish_call() const {
  const Part& part = *work_.finish_;
  Call call;
  call.stream = call_.stream;
  put(part, &call, lse_merge::out, partial_out(), batch_);
  part.put(&call, lse_merge::lse, call_.tensors[attention::lse].data, {batch_, heads_, rows_});
  if (problem().sinks) {
    part.put(&call, lse_merge::sinks, call_.tensors[attention::sinks].data, {heads_});
  }
  if (problem().element != Dtype::f32) {
    put(part, &call, lse_merge::rounded, given(attention::out), batch_);
  }
  return call;
}

Call AttentionRankRun::delta_call() const {
  using namespace attention_delta;
  const Part& part = *work_.delta_;
  Call call;
  call.stream = call_.stream;
  call.workspace = at(places_.inner);
  call.workspace_bytes = static_cast<size_t>(places_.inner_bytes);
  const auto of_rows = [&](int tensor, const void* data) {
    part.put(&call, tensor, data, {batch_, heads_, rows_});
  };
  put(part, &call, out, given(attention::out), batch_);
  put(part, &call, dout, given(attention::dout), batch_);
  of_rows(lse, call_.tensors[attention::lse].data);
  of_rows(delta, at(places_.delta));
  if (problem().dlse) of_rows(dlse, call_.tensors[attention::dlse].data);
  if (problem().dsinks) {
    part.put(&call, sinks, call_.tensors[attention::sinks].data, {heads_});
    part.put(&call, dsinks, call_.tensors[attention::dsinks].data, {heads_});
  }
  return call;
}

Call AttentionRankRun::gradients_call(const Part& part, int i, const KeyBlock& keys,
                                      const KeyBlock& sums) const {
  using namespace attention_block_bwd;
  Call call;
  put_step(part, i, keys, {q, k, v, pairs, pair_batch, alibi_slopes, capture_0}, &call);
  put(part, &call, dout, given(attention::dout), batch_);
  part.put(&call, lse, row_values(call_.tensors[attention::lse].data), {batch_, heads_, rows_});
  part.put(&call, delta, row_values(at(places_.delta)), {batch_, heads_, rows_});
  put(part, &call, dq, rows_at(places_.dq, problem().head_dim), batch_);
  put(part, &call, dk, sums.k, batch_);
  put(part, &call, dv, sums.v, batch_);
  return call;
}

Result<size_t> AttentionRankRun::inner_bytes() {
  size_t most = 0;
  const auto add = [&most](const Part& part, const Call& call) -> Status {
    LATHE_ASSIGN(const size_t bytes, part.work().workspace_bytes(call));
    most = std::max(most, bytes);
    return {};
  };
  if (work_.finish_) LATHE_TRY(add(*work_.finish_, finish_call()));
  if (work_.delta_) LATHE_TRY(add(*work_.delta_, delta_call()));
  for (int64_t s = 0; s < slices(); ++s) {
    take(s);
    for (int i = 0; i < count(); ++i) {
      const KeyBlock keys = keys_of(i);
      if (problem().forward) LATHE_TRY(add(*work_.first_, step_call(*work_.first_, i, keys)));
      if (!problem().backward) continue;
      const KeyBlock sums = block(0, keys.k.tokens, 4);
      for (const Part* part : {work_.gradients_first_.get(), work_.gradients_next_.get()}) {
        LATHE_TRY(add(*part, gradients_call(*part, i, keys, sums)));
      }
    }
  }
  take_all();
  return most;
}

}  // namespace lathe
