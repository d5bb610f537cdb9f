// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks what causal_conv1d_update is given beyond what its table says: how sequences, slots and
// the columns of states fit together, and the counts that a kernel reads unchecked.
#include "codegen/base/invalid.h"
#include "ops/conv/run.h"
#include "ops/slot_values.h"

namespace lathe {
namespace {

using namespace conv_update;

constexpr int64_t kMostColumns = 65536;

// Rows of x, residual and y are alike, and packed ones have no axis of tokens.
Status check_ranks_of_rows(const Resolved& resolved) {
  const Shape& rows = resolved.problem.tensors[x].shape;
  if (resolved.has(cu_seqlens) && rows.rank != 2) {
    return invalid(text("x has rank ", rows.rank, ", ", shape_text(rows),
                        "; allowed with cu_seqlens are packed rows, B,D"));
  }
  for (const int tensor : {residual, y}) {
    if (!resolved.has(tensor)) continue;
    const Shape& found = resolved.problem.tensors[tensor].shape;
    if (found.rank == rows.rank) continue;
    return invalid(text(kTensors[tensor].name, " has rank ", found.rank, ", ", shape_text(found),
                        "; allowed is ", shape_text(rows), ", the shape of x"));
  }
  return {};
}

// The most tokens of a sequence that a state of drafts has columns for.
int64_t most_drafts(int64_t columns, int64_t width) { return columns - (width - 1) + 1; }

}  // namespace

Status check_conv_update_extents(const ConvProblem& problem, const Extents& extents) {
  const int64_t rows = extents[Dim::B], named = extents[Dim::N], slots = extents[Dim::S];
  if (!problem.packed && named != kUnknown && rows != kUnknown && named != rows) {
    return invalid(text(problem.indexed ? "state_indices"
                        : problem.ring  ? "cache_seqlens"
                                        : "num_accepted_tokens",
                        " has N = ", named, " and x has B = ", rows,
                        "; without cu_seqlens allowed is an entry for each row of the batch"));
  }
  const int64_t sequences = problem.packed ? named : rows;
  if (!problem.indexed && slots != kUnknown && sequences != kUnknown && slots != sequences) {
    return invalid(text("state has S = ", slots, "; allowed without state_indices is ", sequences,
                        ", a slot for each sequence"));
  }
  const int64_t tokens = extents[Dim::T];
  if (!problem.drafts || tokens == kUnknown) return {};
  if (tokens <= most_drafts(problem.columns, problem.width)) return {};
  return invalid(text(
      "x has T = ", tokens, " and state has LS = ", problem.columns,
      "; allowed with num_accepted_tokens are LS from W - 2 + T = ", problem.width - 2 + tokens));
}

Status check_conv_update(const Resolved& resolved) {
  LATHE_TRY(check_ranks_of_rows(resolved));
  if (resolved.has(cache_seqlens) && resolved.has(num_accepted_tokens)) {
    return invalid(
        "cache_seqlens is declared with num_accepted_tokens; allowed is one of them: a ring keeps "
        "no drafts");
  }
  LATHE_TRY(check_width("state", "LS", resolved[Dim::LS], 1, resolved[Dim::W] - 1, kMostColumns));
  return check_conv_update_extents(conv_update_problem(resolved), resolved.extents);
}

namespace {

constexpr PoolTensors kPool = {.state_pool = state,
                               .state_indices = state_indices,
                               .source_indices = source_indices,
                               .cu_seqlens = cu_seqlens};

// `padding` says which sequences' counts nobody looks at.
Status check_counts(const Values& values, int tensor, int64_t least, int64_t most,
                    const std::vector<bool>& padding) {
  if (!values.has(tensor)) return {};
  const std::vector<int64_t> counts = values.integers(tensor);
  for (size_t n = 0; n < counts.size(); ++n) {
    if ((n < padding.size() && padding[n]) || (counts[n] >= least && counts[n] <= most)) continue;
    return invalid(text(kTensors[tensor].name, " holds ", counts[n], " at entry ", n,
                        "; allowed are ", least, " to ", most));
  }
  return {};
}

Status check_draft_lengths(const Values& values, int64_t most, const std::vector<bool>& padding) {
  if (!values.problem().has(num_accepted_tokens) || !values.has(cu_seqlens)) return {};
  const std::vector<int64_t> offsets = values.integers(cu_seqlens);
  for (size_t n = 0; n + 1 < offsets.size(); ++n) {
    const int64_t tokens = offsets[n + 1] - offsets[n];
    if (tokens <= most || (n < padding.size() && padding[n])) continue;
    return invalid(text("sequence ", n, " has ", tokens, " tokens and state has LS = ",
                        values[Dim::LS], "; allowed with num_accepted_tokens are up to ", most));
  }
  return {};
}

}  // namespace

Status check_conv_update_values(const Values& values) {
  std::vector<bool> padding;
  if (values.has(state_indices)) {
    LATHE_TRY(check_pool_values(values, kPool));
    const SlotValues slots(values, kPool);
    for (size_t n = 0; n < slots.sequences; ++n) padding.push_back(slots.is_padding(n));
  } else if (values.problem().has(state_indices)) {
    return {};  // which sequences are padding is not known
  }
  const int64_t most = most_drafts(values[Dim::LS], values[Dim::W]);
  LATHE_TRY(check_counts(values, num_accepted_tokens, 1, most, padding));
  LATHE_TRY(check_counts(values, cache_seqlens, 0, kMaxExtent, padding));
  return check_draft_lengths(values, most, padding);
}

}  // namespace lathe
