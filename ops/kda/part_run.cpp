// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Prepares kda on one rank among several: the state of a shard, the shape and the workspace of its
// part, and the cost.
#include <algorithm>

#include "codegen/base/invalid.h"
#include "ops/kda/chunked_run.h"

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

MadeShardState KdaExecutor::prepare(const lathe_shard& shard) const {
  if (!problem().ranks) return std::unique_ptr<const ShardState>();
  const Layout& layout = shard.layout;
  LATHE_TRY(check_shard_form(layout, problem().packed, "cu_seqlens"));
  if (problem().chunk_states) LATHE_TRY(check_chunks(layout, request_.chunk_size));
  auto out = std::make_unique<KdaShardState>();
  out->plan = kda_states_plan(layout, shard.rank);
  out->messages = kda_messages(out->plan, kernels_.summary->constant("states") != 0,
                               kernels_.summary->constant("grads") != 0);
  out->sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  out->transfers.reserve(out->messages.sends.size() + out->messages.receives.size());
  if (problem().packed) {
    const Device& device = group_->device();
    LATHE_TRY(problem().cu_seqlens == Dtype::i64 ? out->upload<int64_t>(device)
                                                 : out->upload<int32_t>(device));
  }
  return std::unique_ptr<const ShardState>(std::move(out));
}

Result<KdaRankWorkspace> KdaExecutor::rank_workspace(const Call& call, const KdaPlan& plan) const {
  const KdaStatesPlan& states = state_of(call).plan;
  const int64_t rows = problem().packed ? 1 : call.extents[Dim::N];
  const int64_t heads = plan.shape.value_heads, k = problem().key_dim, v = problem().value_dim;
  const auto before = static_cast<int64_t>(states.before.size());
  const auto after = static_cast<int64_t>(states.after.size());
  KdaRankWorkspace out;
  WorkspaceLayout layout;
  layout.add({plan.workspace.total});
  out.end = layout.add({4, states.open, rows, heads, v, k});
  out.map = layout.add({4, states.whole(), rows, heads, k, k});
  out.grad = layout.add({4, states.carried, rows, heads, v, k});
  out.ends = layout.add({4, before, rows, heads, v, k});
  out.end_maps = layout.add({4, before, rows, heads, k, k});
  out.grads = layout.add({4, after, rows, heads, v, k});
  out.grad_maps = layout.add({4, after, rows, heads, k, k});
  out.total = layout.total();
  LATHE_TRY(layout.status());
  out.state_bytes = static_cast<size_t>(4 * rows * heads * v * k);
  out.map_bytes = static_cast<size_t>(4 * rows * heads * k * k);
  return out;
}

// Adds the launches that a single rank does not have: summaries that are sent, and their
// composition. Messages are no launches.
void KdaExecutor::add_exchange(const Call& call, const KdaChunkedShape& shape,
                               Estimate* out) const {
  const KdaStatesPlan& plan = state_of(call).plan;
  const int64_t rows = problem().packed ? 1 : call.extents[Dim::N];
  if (plan.sequences() == 0 || rows == 0 || shape.value_heads == 0) return;
  const bool states = kernels_.summary->constant("states") != 0;
  const bool grads = kernels_.summary->constant("grads") != 0;
  const auto tokens = [&](int64_t local) {
    return rows * (plan.cu_seqlens[local + 1] - plan.cu_seqlens[local]);
  };
  KdaPartWalks walks;
  walks.states = states, walks.maps = plan.whole();
  const auto forth = states ? static_cast<int64_t>(plan.before.size()) : 0;
  const auto back = grads ? static_cast<int64_t>(plan.after.size()) : 0;
  walks.links = std::max<int64_t>(forth - 1, 0) + std::max<int64_t>(back - 1, 0);
  for (int64_t step = 1; step < std::max(forth, back); step *= kKdaComposeRadix) ++out->launches;
  const bool hands_on = (plan.open && (states || plan.whole())) || (plan.carried && grads);
  if (hands_on) ++out->launches;
  if (hands_on && shape.segments == 1) {
    if (plan.open && (states || plan.whole())) walks.forth = tokens(plan.sequences() - 1);
    if (plan.carried && grads) walks.back = tokens(0);
    const int64_t columns = kernels_.summary->threads / 2;
    const int64_t width =
        (walks.forth > 0 ? states * problem().value_dim + walks.maps * problem().key_dim : 0) +
        (walks.back > 0 ? problem().value_dim : 0);
    const int64_t blocks = rows * shape.value_heads * ((width + columns - 1) / columns);
    out->cost.chain_cycles += kda_walk_cycles(problem(), *kernels_.summary, blocks,
                                              std::max(walks.forth, walks.back) / rows, facts_);
  }
  out->add({0, kda_part_cost(problem(), *kernels_.summary,
                             {rows, shape.value_heads, 1, problem().key_dim, problem().value_dim},
                             walks)});
}

}  // namespace lathe
