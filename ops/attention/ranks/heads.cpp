// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans attention by exchanged heads: which tensors travel and where they lie. The method follows
// DeepSpeed Ulysses (arXiv 2309.14509), for any balance: whole sequences are put together in the
// order of their positions, so the call in the middle knows nothing of ranks.
#include "ops/attention/ranks/heads.h"

#include <algorithm>
#include <cstdlib>

#include "codegen/base/invalid.h"
#include "ops/attention/ranks/sharded.h"
#include "ops/row_kernels.h"

namespace lathe {

HeadsAttention::HeadsAttention(const lathe_problem& problem, const AttentionRequest& its_request,
                               Group* its_group)
    : request(its_request),
      invariant((problem.group_flags & kRankInvariant) != 0),
      group(its_group),
      reduces((problem.group_flags & kReduceParameterGrads) != 0),
      tensors(hop_tensors(problem, its_request.problem)) {
  for (int i = 0; i < attention::count; ++i) {
    if (problem.has(i)) declared_tensors.push_back(i);
  }
}

Status HeadsAttention::split() {
  const int64_t asked = request.options.head_ranks;
  if (invariant && asked != 0) {
    return invalid(
        text("option head_ranks is ", asked,
             "; allowed with LATHE_RANK_INVARIANT is 0: the heads alone say who computes "
             "what"));
  }
  const int world = group->world(), rank = group->rank();
  const int count = static_cast<int>(std::min<int64_t>(asked, world + 1));
  if (count == 0 || count == world) return {};
  if (count > world || world % count != 0) {
    return invalid(text("option head_ranks is ", asked, ", but the group has ", world,
                        " ranks; allowed are 0 and what divides that"));
  }
  if (group->connected()) {
    LATHE_ASSIGN(ring, Group::split(*group, rank % count, rank));
    LATHE_ASSIGN(of_heads, Group::split(*group, rank / count, rank));
  } else {
    ring = Group::unconnected(world / count, rank / count);
    of_heads = Group::unconnected(count, rank % count);
  }
  group = of_heads.get();
  return {};
}

Status HeadsAttention::make_steps(unsigned group_flags, const DeviceFacts& facts) {
  const AttentionShape& declared = request.declared;
  shares = invariant ? canonical_shares(declared.heads, declared.kv_heads) : group->world();
  LATHE_ASSIGN(const HeadShare share, head_share(declared.heads, declared.kv_heads, shares));
  AttentionRequest inner = request;
  if (invariant) inner.problem.deterministic = inner.problem.rank_invariant = true;
  inner.declared = {declared.sequences, share.q_heads, share.kv_heads, kUnknown, kUnknown};
  inner.ratio = share.kv_heads > 0 ? share.q_heads / share.kv_heads : kUnknown;
  if (!ring) LATHE_TRY(check_without_ranks(inner));
  for (int64_t s = own().begin; s < own().end; ++s) {
    if (!steps.empty() && request.problem.mods.empty()) break;
    inner.first_head = s * share.q_heads;
    LATHE_ASSIGN(RankStep made,
                 RankStep::make("flash_attention",
                                ring ? make_attention_sharded(inner, facts, ring.get(),
                                                              group_flags & ~kExchangeHeads)
                                     : make_attention(inner, facts)));
    steps.push_back(std::move(made));
  }
  const Dtype element = request.problem.element;
  if (share.repeat > 1) sum = sum_rows_spec(element, element, false);
  list({&row_kernels.wide, &row_kernels.narrow, &sum});
  for (const RankStep& each : steps) list(*each);
  return {};
}

MadeShardState HeadsAttention::prepare(const lathe_shard& shard) const {
  const Layout& asked = shard.layout;
  if (invariant) {
    LATHE_TRY(check_shard_form(asked, request.problem.packed, "cu_seqlens_q"));
    LATHE_TRY(check_canonical(asked.queries, asked.cu_seqlens, "queries"));
    LATHE_TRY(check_canonical(asked.keys, asked.cu_seqlens_k, "keys"));
  }
  auto out = std::make_unique<HeadsShardState>();
  const Device& device = group->device();
  const int count = group->world(), rank = group->rank();
  const int first = shard.rank - rank;
  size_t most = 0;
  for (const bool keys : {false, true}) {
    const ShardLayout& layout = keys ? shard.layout.keys : shard.layout.queries;
    const ShardLayout inside = inside_part(layout, first, count);
    HeadsShardState::Axis& axis = keys ? out->keys : out->queries;
    for (const auto& intervals : inside) {
      for (const Interval& interval : intervals) axis.all += interval.size();
    }
    const RowCopies copies = axis_copies(inside, shares);
    const bool packs = most_between(copies) * 3 > kMostMessages;
    LATHE_ASSIGN(axis.out, RowRoute::make(device, copies_of_rank(copies, rank, packs)));
    LATHE_ASSIGN(axis.home, RowRoute::make(device, copies_of_rank(reversed(copies), rank, packs)));
    most += axis.out.copies.sends.size() + axis.out.copies.receives.size();
  }
  if (ring) {
    out->ring.layout = shard.layout;
    out->ring.layout.queries = joined_parts(shard.layout.queries, count);
    out->ring.layout.keys = joined_parts(shard.layout.keys, count);
    out->ring.rank = ring->rank();
    LATHE_ASSIGN(out->of_ring, steps.front()->prepare(out->ring));
  }
  out->add_dsinks(rank, count, shares, most * tensors.size());
  return std::unique_ptr<const ShardState>(std::move(out));
}

Status HeadsAttention::check(const Call& call) const {
  LATHE_TRY(shard_state_of<HeadsShardState>(call));
  const int64_t heads = call.extents[Dim::H], kv_heads = call.extents[Dim::HK];
  return head_share(heads, kv_heads, shares).status();
}

Result<HeadShare> head_share(int64_t heads, int64_t kv_heads, int shares) {
  HeadShare out;
  const bool whole = kv_heads % shares == 0;
  const bool repeated = kv_heads > 0 && shares % kv_heads == 0;
  const bool fits =
      (heads == kUnknown || heads % shares == 0) && (kv_heads == kUnknown || whole || repeated);
  if (!fits || heads == kUnknown || kv_heads == kUnknown) {
    return invalid(text("exchanged heads: q has H = ", heads, " and k has HK = ", kv_heads,
                        ", the group has ", shares,
                        " ranks; allowed are H that are multiples of that, with HK that are "
                        "multiples or divide it"));
  }
  out.q_heads = heads / shares;
  out.kv_heads = whole ? kv_heads / shares : 1;
  out.repeat = whole ? 1 : shares / kv_heads;
  return out;
}

int canonical_shares(int64_t heads, int64_t kv_heads) {
  int shares = kMostShares;
  while (shares > 1 && !head_share(heads, kv_heads, shares).ok()) --shares;
  return shares;
}

MadeExecutor make_attention_heads(const lathe_problem& problem, const AttentionRequest& request,
                                  const DeviceFacts& facts, Group* group) {
  auto executor = std::make_unique<RankExecutor<HeadsAttention, HeadsRun>>(problem, request, group);
  LATHE_TRY(executor->split());
  const bool invariant = (problem.group_flags & kRankInvariant) != 0;
  // A measured tile would change the order of sums.
  LATHE_TRY(executor->make_steps(problem.group_flags, invariant ? without_choices(facts) : facts));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace lathe
