// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the plan of flash_attention over ranks: its steps, the state of a shard, its checks.
#include "ops/attention/ranks/sharded.h"

#include <algorithm>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/row_copies.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

Status check_covered(const AttentionRequest& request, unsigned flags) {
  const char* over = " over a group of ranks";
  if (request.alibi_rows && request.problem.packed) {
    return unsupported(text("alibi_slopes of [B,H] with cu_seqlens_q have no kernels", over,
                            "; allowed are [H], or [B,H] without cu_seqlens_q"));
  }
  const int64_t heads = request.options.gather_heads;
  if (heads != 0 && !(flags & kAllgather)) {
    return invalid(text("option gather_heads is ", heads,
                        "; allowed is 0, but with the group's flag LATHE_ALLGATHER (2)"));
  }
  if (heads != 0 && !request.problem.mods.empty()) {
    return unsupported(text("option gather_heads is ", heads,
                            "; allowed is 0 with score_mod or mask_mod, which see all heads"));
  }
  if (flags & (kDispatch | kExchangeHeads)) {
    return unsupported(
        text("group flags are ", flags,
             "; flash_attention takes 0 or LATHE_ALLGATHER (2), with LATHE_REDUCE_PARAMETER_GRADS "
             "(1) and LATHE_NARROW_GRADIENTS (16)"));
  }
  return {};
}

}  // namespace

AttentionSharded::AttentionSharded(const AttentionRequest& request, Group* group, unsigned flags)
    : request_(request), group_(group), flags_(flags) {}

Status AttentionSharded::make_steps(const DeviceFacts& facts) {
  LATHE_TRY(steps_.make(request_, facts, true));
  for (const Part* step : steps_.all()) list(step->executor());
  constexpr int kVectorBytes = 16, kVector = 4;  // rows are multiples of 8 elements
  copy_rows_ = copy_rows_spec(RowIndex::none, kVectorBytes);
  if (request_.problem.backward) {
    if (!gathers()) add_rows_ = add_rows_spec(travelling(), travelling());
    sum_parts_ = sum_parts_spec(travelling(), request_.problem.element, kVector);
  }
  list({&copy_rows_, &add_rows_, &sum_parts_});
  return {};
}

MadeShardState AttentionSharded::prepare(const lathe_shard& shard) const {
  const Layout& layout = shard.layout;
  const AttentionProblem& asked = request_.problem;
  LATHE_TRY(check_shard_form(layout, asked.packed, "cu_seqlens_q"));
  for (const auto& [axis, tokens] :
       {std::pair("queries", layout.length), std::pair("keys", layout.key_length)}) {
    if (tokens <= kMostTokens) continue;
    return unsupported(
        text("the shard has ", tokens, " tokens of ", axis, "; allowed are 0 to ", kMostTokens));
  }
  const bool positions = asked.alibi || !asked.mods.empty();
  const VisibleRange visible{request_.window_left, request_.window_right, positions};
  LATHE_ASSIGN(AttentionRounds rounds,
               attention_rounds(layout, shard.rank,
                                gathers() ? Rotation::allgather : Rotation::ring, visible));
  return AttentionTables::make(group_->device(), layout, std::move(rounds), names_sequences());
}

Status AttentionSharded::check(const Call& call) const {
  LATHE_ASSIGN(const AttentionTables* tables, shard_state_of<AttentionTables>(call));
  LATHE_TRY(check_heads(call.extents[Dim::H], call.extents[Dim::HK]));
  return check_shard_sequences(call, request_.problem.packed, tables->sequences, "cu_seqlens_q");
}

MadeExecutor make_attention_sharded(const AttentionRequest& request, const DeviceFacts& facts,
                                    Group* group, unsigned flags) {
  LATHE_TRY(check_covered(request, flags));
  auto executor = std::make_unique<AttentionSharded>(request, group, flags);
  LATHE_TRY(executor->make_steps(facts));
  return std::unique_ptr<Executor>(std::move(executor));
}

namespace {

// Returns the sequence of each range, which is that of its first row.
std::vector<int32_t> sequences_of(const std::vector<AttentionRange>& ranges, const Layout& layout,
                                  int rank) {
  const std::vector<TokenRun> runs = token_runs(layout.queries[rank], layout.cu_seqlens);
  std::vector<int32_t> out;
  for (const AttentionRange& range : ranges) {
    const auto behind = std::partition_point(
        runs.begin(), runs.end(), [&](const TokenRun& run) { return run.begin <= range.qa; });
    out.push_back(std::prev(behind)->sequence);
  }
  return out;
}

}  // namespace

MadeShardState AttentionTables::make(const Device& device, const Layout& layout,
                                     AttentionRounds attention_rounds, bool names_sequences) {
  auto out = std::make_unique<AttentionTables>();
  out->rounds = std::move(attention_rounds);
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  out->gather_only_seen();
  const AttentionRounds& rounds = out->rounds;
  std::vector<AttentionRange> all;
  for (const AttentionRound& round : rounds.rounds) {
    out->first_.push_back(static_cast<int64_t>(all.size()));
    all.insert(all.end(), round.ranges.begin(), round.ranges.end());
  }
  LATHE_ASSIGN(out->ranges_, DeviceTable::upload(device, std::as_bytes(std::span(all))));
  if (names_sequences) {
    LATHE_ASSIGN(out->range_sequences_,
                 DeviceTable::upload(device, sequences_of(all, layout, rounds.rank)));
  }
  // Three words each: tokens of the parts before it, its first token, its last + 1; -1: own.
  const auto own = static_cast<int32_t>(rounds.key_tokens[rounds.rank]);
  std::vector<int32_t> places = {-1, 0, own, 0, 0, own};
  for (int peer = 0; peer < static_cast<int>(rounds.send_keys.size()); ++peer) {
    // A rank that received keys returns their gradients.
    const KeyMessage& share = rounds.send_keys[peer];
    if (!share && peer != rounds.rank) continue;
    const auto before = static_cast<int32_t>(peer == rounds.rank ? -1 : out->share_tokens_);
    places.insert(places.end(), {before, static_cast<int32_t>(share.begin),
                                 static_cast<int32_t>(share.begin + share.tokens)});
    out->share_tokens_ += share ? share.tokens : 0;
    ++out->shares_;
  }
  LATHE_ASSIGN(out->places_, DeviceTable::upload(device, places));
  const size_t messages = 2 * static_cast<size_t>(rounds.world);
  out->sends.resize(messages), out->receives.resize(messages);
  return std::unique_ptr<const ShardState>(std::move(out));
}

// Changes the rounds, which count keys in a buffer of all ranks' keys, to a buffer of the seen keys
// only. The keys of a range are all seen and stay side by side.
void AttentionTables::gather_only_seen() {
  for (const KeyMessage& message : rounds.receive_keys) {
    gathered.push_back(gathered.back() + (message ? message.tokens : 0));
  }
  if (rounds.rotation != Rotation::allgather) return;
  for (AttentionRange& range : rounds.rounds.back().ranges) {
    int owner = 0;
    while (rounds.key_offsets[owner + 1] <= range.ka) ++owner;
    const auto moved = static_cast<int32_t>(gathered[owner] - rounds.key_offsets[owner] -
                                            rounds.receive_keys[owner].begin);
    range.ka += moved;
    range.kb += moved;
  }
}

AttentionTables::Places AttentionTables::places(int which) const {
  constexpr int kPlaceBytes = 3 * sizeof(int32_t);
  const char* data = places_.data() + which * kPlaceBytes;
  if (which == kShares) return {data, shares_, share_tokens_};
  return {data, 1, rounds.key_tokens[rounds.rank]};
}

}  // namespace lathe
