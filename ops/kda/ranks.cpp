// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the program of kda on one rank of several: checks, the state of a shard, the estimate.
#include "ops/kda/ranks.h"

#include "codegen/base/invalid.h"
#include "ops/kda/ranks_pieces.h"

namespace lathe {
namespace {

// Chunks are counted from the starts of sequences: a part that begins within one would leave states
// that are none of the whole's.
Status check_chunks(const Layout& layout, int64_t chunk) {
  for (int rank = 0; rank < layout.world(); ++rank) {
    const KdaStatesPlan plan = kda_states_plan(layout, rank);
    if (plan.carried_tokens % chunk == 0) continue;
    return invalid(text("chunk_states is declared with chunk_size ", chunk, ", and rank ", rank,
                        " begins ", plan.carried_tokens, " tokens into sequence ", plan.first,
                        "; allowed are multiples of chunk_size (the shard's bounds)"));
  }
  return {};
}

}  // namespace

KdaOverRanks::KdaOverRanks(std::unique_ptr<KdaExecutor> its_own, Group* its_group, bool its_reduces)
    : own(std::move(its_own)), group(its_group), reduces(its_reduces) {
  list(*own);
}

Status KdaOverRanks::check(const Call& call) const {
  LATHE_ASSIGN(const KdaShardState* state, shard_state_of<KdaShardState>(call));
  return check_shard_sequences(call, problem().packed, state->sequences, "cu_seqlens");
}

MadeShardState KdaOverRanks::prepare(const lathe_shard& shard) const {
  const Layout& layout = shard.layout;
  LATHE_TRY(check_shard_form(layout, problem().packed, "cu_seqlens"));
  if (problem().chunk_states) LATHE_TRY(check_chunks(layout, own->request().chunk_size));
  auto out = std::make_unique<KdaShardState>();
  out->plan = kda_states_plan(layout, shard.rank);
  out->messages = kda_messages(out->plan, states(), grads());
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  out->hop.reserve(out->messages.sends.size() + out->messages.receives.size());
  if (problem().packed) {
    const std::vector<int64_t>& offsets = out->plan.cu_seqlens;
    const std::vector<int32_t> narrow(offsets.begin(), offsets.end());
    LATHE_ASSIGN(out->table, problem().cu_seqlens == Dtype::i64
                                 ? DeviceTable::upload(group->device(), offsets)
                                 : DeviceTable::upload(group->device(), narrow));
  }
  return std::unique_ptr<const ShardState>(std::move(out));
}

MadeExecutor make_kda_over_ranks(std::unique_ptr<KdaExecutor> own, const DeviceFacts& facts,
                                 Group* group, bool reduces) {
  MadeExecutor pieces = make_kda_over_pieces(own->request(), facts, group, reduces);
  return executor_of_layouts(
      executor_of<RankExecutor<KdaOverRanks, KdaRankRun>>(std::move(own), group, reduces),
      std::move(pieces));
}

// Returns the walks that a single rank does not have: summaries that are sent, and their
// composition.
KdaPartWalks KdaRankRun::walks() const {
  KdaPartWalks out;
  out.states = program_.states(), out.maps = states_.whole();
  const int forth = program_.states() ? before() : 0, back = program_.grads() ? after() : 0;
  out.links = std::max(forth - 1, 0) + std::max(back - 1, 0);
  if (segments() > 1) return out;
  if (sends_forth()) out.forth = rows_ * tokens(states_.sequences() - 1);
  if (sends_back()) out.back = rows_ * tokens(0);
  return out;
}

// Adds the launches and the cost of the walks. Messages are no launches.
Result<Estimate> KdaRankRun::estimate() const {
  LATHE_ASSIGN(Estimate out, program_.own->estimate_plan(call_, plan_));
  if (states_.sequences() == 0 || rows_ == 0 || heads() == 0) return out;
  const int forth = program_.states() ? before() : 0, back = program_.grads() ? after() : 0;
  for (int step = 1; step < std::max(forth, back); step *= kKdaComposeRadix) ++out.launches;
  if (sends_forth() || sends_back()) ++out.launches;
  const KdaSegmentShape one = {rows_, heads(), 1, problem_.key_dim, problem_.value_dim};
  out.add({0, kda_part_cost(problem_, *program_.kernels().summary, one, walks())});
  return out;
}

}  // namespace lathe
