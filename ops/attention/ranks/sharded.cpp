// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the program of flash_attention with keys that travel: its steps, its checks.
#include "ops/attention/ranks/sharded.h"

#include <algorithm>
#include <utility>

#include "codegen/base/invalid.h"
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

ShardedAttention::ShardedAttention(const AttentionRequest& its_request, Group* its_group,
                                   unsigned its_flags)
    : request(its_request), group(its_group), flags(its_flags) {}

Status ShardedAttention::make_steps(const DeviceFacts& facts) {
  LATHE_TRY(steps.make(request, facts, true));
  for (const AttentionStep* step : steps.all()) {
    if (*step) list(**step);
  }
  constexpr int kVectorBytes = 16, kVector = 4;  // rows are multiples of 8 elements
  copy_rows = copy_rows_spec(RowIndex::none, kVectorBytes);
  if (request.problem.backward) {
    if (!gathers()) add_rows = add_rows_spec(travelling(), travelling());
    sum_parts = sum_parts_spec(travelling(), request.problem.element, kVector);
  }
  list({&copy_rows, &add_rows, &sum_parts});
  return {};
}

MadeShardState ShardedAttention::prepare(const lathe_shard& shard) const {
  const Layout& layout = shard.layout;
  const AttentionProblem& asked = request.problem;
  LATHE_TRY(check_shard_form(layout, asked.packed, "cu_seqlens_q"));
  const int64_t rows = layout.capacity.tokens * layout.world();  // of all ranks, if there is one
  for (const auto& [axis, tokens] : {std::pair("queries", std::max(layout.length, rows)),
                                     std::pair("keys", std::max(layout.key_length, rows))}) {
    if (tokens <= kMostTokens) continue;
    return unsupported(
        text("the shard has ", tokens, " tokens of ", axis, "; allowed are 0 to ", kMostTokens));
  }
  const bool positions = asked.alibi || !asked.mods.empty();
  const VisibleRange visible{request.window_left, request.window_right, positions};
  return RoundTables::make(group->device(), shard,
                           {.rotation = gathers() ? Rotation::allgather : Rotation::ring,
                            .visible = visible,
                            .names_sequences = names_sequences()});
}

Status ShardedAttention::check_capacity() const {
  if (!request.problem.dsinks) return {};
  return unsupported(
      "dsinks is declared, which is a sum over all rows; allowed with capacity_tokens is a call "
      "without it");
}

Status ShardedAttention::check(const Call& call) const {
  LATHE_ASSIGN(const RoundTables* tables, shard_state_of<RoundTables>(call));
  LATHE_TRY(check_heads(call.extents[Dim::H], call.extents[Dim::HK]));
  return check_shard_sequences(call, request.problem.packed, tables->sequences, "cu_seqlens_q");
}

MadeExecutor make_attention_sharded(const AttentionRequest& request, const DeviceFacts& facts,
                                    Group* group, unsigned flags) {
  LATHE_TRY(check_covered(request, flags));
  auto program = flags & kAllgather ? new_gathered_attention(request, group, flags)
                                    : new_ring_attention(request, group, flags);
  LATHE_TRY(program->make_steps(facts));
  return std::unique_ptr<Executor>(std::move(program));
}

}  // namespace lathe
