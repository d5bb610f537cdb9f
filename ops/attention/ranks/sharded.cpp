// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The plan of flash_attention over ranks: its parts, what it makes of a shard, its checks.
#include "ops/attention/ranks/sharded.h"

#include <utility>

#include "codegen/base/invalid.h"
#include "ops/attention/ranks/sharded_run.h"
#include "ops/row_kernels.h"

namespace lathe {
namespace {

constexpr int64_t kMostTokens = int64_t{1} << 30;  // positions are added in 32 bits

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

Result<std::unique_ptr<const ShardState>> AttentionSharded::prepare(
    const lathe_shard& shard) const {
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
  return check_shard_sequences(call, request_.problem.packed, tables->sequences(), "cu_seqlens_q");
}

Result<size_t> AttentionSharded::workspace_bytes(const Call& call) const {
  LATHE_TRY(check(call));
  AttentionRankRun run(*this, call);
  LATHE_TRY(run.lay_out());
  return static_cast<size_t>(run.places().total);
}

Result<Estimate> AttentionSharded::estimate(const Call& call) const {
  LATHE_TRY(check(call));
  AttentionRankRun run(*this, call);
  LATHE_TRY(run.lay_out());
  return run.estimate();
}

Status AttentionSharded::run(const Call& call) const {
  LATHE_TRY(check(call));
  AttentionRankRun run(*this, call);
  LATHE_TRY(run.lay_out());
  LATHE_TRY(call.check_workspace(run.places().total));
  if (request_.problem.forward) LATHE_TRY(run.forward());
  return backward() ? run.backward() : Status();
}

Result<std::unique_ptr<Executor>> make_attention_sharded(const AttentionRequest& request,
                                                         const DeviceFacts& facts, Group* group,
                                                         unsigned flags) {
  LATHE_TRY(check_covered(request, flags));
  auto executor = std::make_unique<AttentionSharded>(request, group, flags);
  LATHE_TRY(executor->make_steps(facts));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace lathe
