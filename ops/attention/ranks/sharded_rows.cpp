// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Rows moved, added and rounded between the steps of sharded attention.
#include <utility>

#include "ops/attention/ranks/sharded_run.h"
#include "ops/row_kernels.h"
#include "templates/params/rows.h"

namespace lathe {
namespace {

Grid blocks(int64_t count) { return Grid{static_cast<unsigned>(count), 1, 1}; }

}  // namespace

Status AttentionRankRun::copy(const TokenRows& from, const TokenRows& to) {
  const Kernel& kernel = *work_.copy_rows_;
  const int64_t vector = kernel.spec().constant("vector");
  CopyRowsParams p = {};
  p.from = from.data;
  p.to = to.data;
  p.from_batch_stride = from.batch_stride * element();
  p.from_token_stride = from.token_stride * element();
  p.from_head_stride = from.head_stride * element();
  p.to_batch_stride = to.batch_stride * element();
  p.to_token_stride = to.token_stride * element();
  p.to_head_stride = to.head_stride * element();
  p.cells = static_cast<int>(batch_ * from.tokens);
  p.groups = 1;
  p.tokens = static_cast<int>(from.tokens);
  p.heads = static_cast<int>(from.heads);
  p.vectors = static_cast<int>(from.width * element() / vector);
  p.limit = p.tokens;
  p.lane_bits = lane_bits_of(kernel.spec(), int64_t{p.heads} * p.vectors);
  return kernel.launch(blocks(row_blocks(kernel.spec(), p.cells, p.lane_bits)), &p, call_.stream);
}

Status AttentionRankRun::sum(const char* own, const char* parts,
                             const AttentionTables::Places& places, const TokenRows& to) {
  const Kernel& kernel = *work_.sum_parts_;
  const int64_t vector = kernel.spec().constant("vector");
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
  p.lane_bits = lane_bits_of(kernel.spec(), int64_t{p.heads} * p.vectors);
  return kernel.launch(blocks(row_blocks(kernel.spec(), p.cells, p.lane_bits)), &p, call_.stream);
}

// What is sent from where the caller has it may have no gaps.
Status AttentionRankRun::pack_own_keys() {
  const KeyBlock from = own_keys(), to = sent_keys();
  LATHE_TRY(copy(from.k, to.k));
  return copy(from.v, to.v);
}

// part + arriving -> sum, over a block of `tokens`.
Status AttentionRankRun::add_sums(int64_t tokens, bool arrived) {
  if (!arrived && work_.travelling() == Dtype::f32) {
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
  const Kernel& kernel = *work_.add_rows_;
  return kernel.launch(blocks(item_blocks(kernel.spec(), p.count)), &p, call_.stream);
}

// The whole sums of own keys to where the caller wants them: those that came home, or those of own
// rows, the only ones that see them.
Status AttentionRankRun::give_home(bool arrived) {
  const KeyBlock home = arrived ? block(places_.home, own_tokens(), bytes_of(work_.travelling()))
                                : block(places_.part, own_tokens(), 4);
  const auto places = tables_.places(arrived ? AttentionTables::kArrived : AttentionTables::kOwn);
  const auto give = [&](const TokenRows& from, int tensor) {
    return sum(arrived ? nullptr : from.data, arrived ? from.data : nullptr, places, given(tensor));
  };
  if (work_.request_.gradients.dk) LATHE_TRY(give(home.k, attention::dk));
  return work_.request_.gradients.dv ? give(home.v, attention::dv) : Status();
}

Status AttentionRankRun::give_shares() {
  const auto places = tables_.places(AttentionTables::kShares);
  const KeyBlock own = block(places_.own, own_tokens(), 4);
  const KeyBlock parts = block(places_.shares, places.tokens, bytes_of(work_.travelling()));
  if (work_.request_.gradients.dk) {
    LATHE_TRY(sum(own.k.data, parts.k.data, places, given(attention::dk)));
  }
  if (!work_.request_.gradients.dv) return {};
  return sum(own.v.data, parts.v.data, places, given(attention::dv));
}

}  // namespace lathe
