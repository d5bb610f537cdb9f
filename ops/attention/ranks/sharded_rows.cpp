// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Moves, adds and rounds rows between the steps of sharded attention.
#include <utility>

#include "ops/attention/ranks/sharded.h"
#include "ops/row_kernels.h"
#include "templates/params/rows.h"

namespace lathe {
Status AttentionRankRun::sum(const char* own, const char* parts,
                             const AttentionTables::Places& places, const TokenRows& to) {
  const KernelSlot& kernel = executor_.sum_parts_;
  const int64_t vector = kernel->constant("vector");
  SumPartsParams p = {};
  p.own = own;
  p.parts = parts;
  p.places = places.data;
  p.out = to.data;
  p.own_batch_stride = to.tokens * to.heads * to.width;
  p.out_batch_stride = to.batch_stride;
  p.out_token_stride = to.token_stride;
  p.out_head_stride = to.head_stride;
  p.part_tokens = parts ? places.tokens : 0;
  p.cells = static_cast<int>(batch_ * to.tokens);
  p.batch = static_cast<int>(batch_);
  p.tokens = static_cast<int>(to.tokens);
  p.heads = static_cast<int>(to.heads);
  p.vectors = static_cast<int>(to.width / vector);
  p.count = places.count;
  p.lane_bits = lane_bits_of(*kernel, int64_t{p.heads} * p.vectors);
  return kernel.launch(row_blocks(*kernel, p.cells, p.lane_bits), &p, call_.stream);
}

// Copies own keys without gaps, because messages that are sent from the caller's memory may have
// none.
Status AttentionRankRun::pack_own_keys() {
  const KeyBlock from = own_keys(), to = sent_keys();
  LATHE_TRY(copy(from.k, to.k));
  return copy(from.v, to.v);
}

// part + arriving -> sum, over a block of `tokens`.
Status AttentionRankRun::add_sums(int64_t tokens, bool arrived) {
  if (!arrived && executor_.travelling() == Dtype::f32) {
    std::swap(places_.part, places_.sum);
    return {};
  }
  if (!arrived) {
    const KeyBlock from = block(places_.part, tokens, 4),
                   to = block(places_.sum, tokens, element());
    LATHE_TRY(cast(from.k, to.k));
    return cast(from.v, to.v);
  }
  AddRowsParams p = {};
  p.a = at(places_.arriving);
  p.b = at(places_.part);
  p.out = at(places_.sum);
  p.count = key_elements(tokens);
  const KernelSlot& kernel = executor_.add_rows_;
  return kernel.launch(item_blocks(*kernel, p.count), &p, call_.stream);
}

// Writes the whole sums of own keys to the caller's tensors: the sums that came home, or those of
// own rows if no other rows see the keys.
Status AttentionRankRun::give_home(bool arrived) {
  const KeyBlock home = arrived
                            ? block(places_.home, own_tokens(), bytes_of(executor_.travelling()))
                            : block(places_.part, own_tokens(), 4);
  const auto places = tables_.places(arrived ? AttentionTables::kArrived : AttentionTables::kOwn);
  const auto give = [&](const TokenRows& from, int tensor) {
    return sum(arrived ? nullptr : from.data, arrived ? from.data : nullptr, places, given(tensor));
  };
  if (executor_.request_.gradients.dk) LATHE_TRY(give(home.k, attention::dk));
  return executor_.request_.gradients.dv ? give(home.v, attention::dv) : Status();
}

Status AttentionRankRun::give_shares() {
  const auto places = tables_.places(AttentionTables::kShares);
  const KeyBlock own = block(places_.own, own_tokens(), 4);
  const KeyBlock parts = block(places_.shares, places.tokens, bytes_of(executor_.travelling()));
  if (executor_.request_.gradients.dk) {
    LATHE_TRY(sum(own.k.data, parts.k.data, places, given(attention::dk)));
  }
  if (!executor_.request_.gradients.dv) return {};
  return sum(own.v.data, parts.v.data, places, given(attention::dv));
}

}  // namespace lathe
