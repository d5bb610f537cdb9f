// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lays out the workspace of a call of sharded attention, and builds the calls of its steps.
#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/attention/ranks/sharded.h"

namespace lathe {

AttentionRankRun::AttentionRankRun(const AttentionSharded& executor, const Call& call)
    : executor_(executor),
      request_(executor.request_),
      steps_(executor.steps_),
      call_(call),
      tables_(static_cast<const AttentionTables&>(*call.shard_state)),
      rounds_(tables_.rounds),
      all_batch_(problem().packed ? 1 : call.extents[Dim::B]),
      all_heads_(call.extents[Dim::H]),
      all_kv_heads_(call.extents[Dim::HK]),
      rows_(rounds_.query_tokens),
      exchange_(*executor.group_, call.stream) {
  take_all();
}

int64_t AttentionRankRun::head_groups() const {
  const int64_t each = request_.options.gather_heads;
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
  slice_.kv_head = slice % head_groups() * request_.options.gather_heads;
  slice_.head = slice_.kv_head * ratio;
  batch_ = 1;
  kv_heads_ = std::min(request_.options.gather_heads, all_kv_heads_ - slice_.kv_head);
  heads_ = kv_heads_ * ratio;
}

TokenRows AttentionRankRun::given(int tensor) const {
  const bool keys = tensor == attention::k || tensor == attention::v || tensor == attention::dk ||
                    tensor == attention::dv;
  TokenRows out = rows_of(call_.tensors[tensor], problem().packed);
  out.batch = batch_, out.heads = keys ? kv_heads_ : heads_;
  const int64_t head = keys ? slice_.kv_head : slice_.head;
  const int64_t begin = slice_.row * out.batch_stride + head * out.head_stride;
  if (out.data) out.data += begin * element();
  return out;
}

TokenRows AttentionRankRun::rows_at(char* data, int64_t width) const {
  TokenRows out = dense_rows(data, all_batch_, rows_, all_heads_, width);
  out.batch = batch_, out.heads = heads_;
  const int64_t begin = slice_.row * out.batch_stride + slice_.head * out.head_stride;
  out.data += begin * static_cast<int64_t>(sizeof(float));
  return out;
}

KeyBlock AttentionRankRun::block(char* data, int64_t tokens, int64_t bytes) const {
  KeyBlock out;
  out.k = dense_rows(data, batch_, tokens, kv_heads_, problem().head_dim);
  out.v =
      dense_rows(data + out.k.elements() * bytes, batch_, tokens, kv_heads_, problem().value_dim);
  return out;
}

KeyBlock AttentionRankRun::sent_keys() const {
  return packs_ ? block(packed_[slice_.index % 2], own_tokens(), element()) : own_keys();
}

KeyBlock AttentionRankRun::ring_keys(int i) const {
  return i == 0 ? own_keys() : block(blocks_[i % 2], owner_tokens(i), element());
}

KeyBlock AttentionRankRun::gathered_keys() const {
  return block(gathered_[slice_.index % 2], tables_.gathered.back(), element());
}

TokenRows AttentionRankRun::partial_out() const {
  if (problem().element == Dtype::f32) return given(attention::out);
  return rows_at(out_, problem().value_dim);
}

bool AttentionRankRun::sends_own_keys() const {
  if (!gathers()) return static_cast<bool>(at_round(0).send_keys);
  const auto& sends = rounds_.send_keys;
  return std::any_of(sends.begin(), sends.end(), [](const KeyMessage& m) { return bool(m); });
}

Status AttentionRankRun::lay_out() {
  const int64_t rows = all_batch_ * rows_ * all_heads_;
  if (problem().forward && problem().element != Dtype::f32) {
    out_ = section({rows, problem().value_dim, 4});
  }
  if (steps_.delta) delta_ = section({rows, 4});
  if (problem().backward) dq_ = section({rows, problem().head_dim, 4});
  take(0);  // no other is larger
  lay_out_keys();
  if (problem().backward) lay_out_backward();
  take_all();
  LATHE_ASSIGN(const size_t inner, inner_bytes());
  inner_bytes_ = static_cast<int64_t>(inner);
  inner_ = section({inner_bytes_});
  return layout_.status();
}

char* AttentionRankRun::key_section(int64_t tokens, int64_t bytes) {
  return section({batch_ * tokens, kv_heads_, problem().head_dim + problem().value_dim, bytes});
}

// Lays out the buffers of keys. There are two of a buffer that is filled for a later step while an
// earlier one reads.
void AttentionRankRun::lay_out_keys() {
  const KeyBlock own = own_keys();
  packs_ = sends_own_keys() && (!own.k.is_dense() || !own.v.is_dense());
  for (int i = 0; i < (slices() > 1 ? 2 : 1); ++i) {
    if (packs_) packed_[i] = key_section(own_tokens(), element());
    if (gathers()) gathered_[i] = key_section(tables_.gathered.back(), element());
  }
  if (gathers() || count() == 1) return;
  for (char*& block : blocks_) block = key_section(rounds_.most_key_tokens, element());
}

void AttentionRankRun::lay_out_backward() {
  const int64_t travelling = bytes_of(executor_.travelling());
  if (gathers()) {
    const int64_t all = tables_.gathered.back();
    part_ = key_section(all, 4);
    if (travelling != 4) owed_ = key_section(all, travelling);
    own_ = key_section(own_tokens(), 4);
    shares_ = key_section(tables_.places(AttentionTables::kShares).tokens, travelling);
    return;
  }
  part_ = key_section(rounds_.most_key_tokens, 4);
  sum_ = key_section(rounds_.most_key_tokens, travelling);
  arriving_ = key_section(rounds_.most_key_tokens, travelling);
  home_ = key_section(own_tokens(), travelling);
}

BlockInputs AttentionRankRun::inputs(int i, const KeyBlock& keys) const {
  BlockInputs out;
  out.q = given(attention::q), out.keys = keys;
  out.ranges = tables_.ranges(i);
  out.range_count = static_cast<int64_t>(at_round(i).ranges.size());
  if (executor_.names_sequences()) out.range_sequences = tables_.range_sequences(i);
  if (!problem().alibi) return out;
  const bool by_row = request_.alibi_rows;
  const int64_t first = (by_row ? slice_.row * all_heads_ : 0) + slice_.head;
  out.slopes = call_.tensors[attention::alibi_slopes].data + first * 4;
  out.slopes_batch_stride = by_row ? all_heads_ : 0;
  return out;
}

Call AttentionRankRun::step_call(const Part& part, int i, const KeyBlock& keys) const {
  Call call = inner_call();
  steps_.put_forward(part, inputs(i, keys), partial_out(),
                     row_values(call_.tensors[attention::lse].data), call_, &call);
  return call;
}

Call AttentionRankRun::finish_call() const {
  Call call = inner_call();
  steps_.put_finish(partial_out(), call_.tensors[attention::lse].data, given(attention::out), call_,
                    &call);
  return call;
}

Call AttentionRankRun::delta_call() const {
  const auto& t = call_.tensors;
  Call call = inner_call();
  steps_.put_delta({given(attention::out), given(attention::dout), t[attention::lse].data,
                    t[attention::dlse].data, delta_, t[attention::dsinks].data},
                   call_, &call);
  return call;
}

Call AttentionRankRun::gradients_call(const Part& part, int i, const KeyBlock& keys,
                                      const KeyBlock& sums) const {
  Call call = inner_call();
  steps_.put_gradients(part, inputs(i, keys),
                       {given(attention::dout), rows_at(dq_, problem().head_dim), sums,
                        row_values(call_.tensors[attention::lse].data), row_values(delta_)},
                       call_, &call);
  return call;
}

Result<size_t> AttentionRankRun::inner_bytes() {
  size_t most = 0;
  const auto add = [&most](const Part& part, const Call& call) -> Status {
    LATHE_ASSIGN(const size_t bytes, part.executor().workspace_bytes(call));
    most = std::max(most, bytes);
    return {};
  };
  if (steps_.finish) LATHE_TRY(add(*steps_.finish, finish_call()));
  if (steps_.delta) LATHE_TRY(add(*steps_.delta, delta_call()));
  for (int64_t s = 0; s < slices(); ++s) {
    take(s);
    for (int i = 0; i < count(); ++i) {
      const KeyBlock keys = keys_of(i);
      if (problem().forward) LATHE_TRY(add(*steps_.first, step_call(*steps_.first, i, keys)));
      if (!problem().backward) continue;
      const KeyBlock sums = block(part_, keys.k.tokens, 4);
      for (const bool first : {true, false}) {
        const Part& part = gradients_part(first);
        LATHE_TRY(add(part, gradients_call(part, i, keys, sums)));
      }
    }
  }
  take_all();
  return most;
}

}  // namespace lathe
