// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Checks values that calls of the KDA operators have on the host, and sets what follows from them.
#include <cstdlib>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/kda/request.h"
#include "ops/kda/schema.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

constexpr PoolTensors kOfKda = {
    .state_pool = kda::state_pool,
    .state_indices = kda::state_indices,
    .source_indices = kda::source_indices,
    .has_initial_state = kda::has_initial_state,
    .cu_seqlens = kda::cu_seqlens,
    .cu_checkpoints = kda::cu_checkpoints,
    .checkpoint_tokens = kda::checkpoint_tokens,
    .checkpoint_slots = kda::checkpoint_slots,
};
constexpr PoolTensors kOfRecurrent = {
    .state_pool = kda_recurrent::state_pool,
    .state_indices = kda_recurrent::state_indices,
    .source_indices = kda_recurrent::source_indices,
    .has_initial_state = kda_recurrent::has_initial_state,
    .cu_seqlens = kda_recurrent::cu_seqlens,
    .num_accepted_tokens = kda_recurrent::num_accepted_tokens,
};

int64_t chunk_size(const lathe_problem& problem) {
  return std::strtoll(problem.option("chunk_size").c_str(), nullptr, 10);
}

}  // namespace

void derive_kda(const lathe_problem& problem, Extents* extents) {
  const int64_t tokens = (*extents)[Dim::T], sequences = (*extents)[Dim::N];
  if (tokens == kUnknown || sequences == kUnknown) return;
  const bool packed = problem.has(kda::cu_seqlens);
  const int64_t chunk = chunk_size(problem);
  int64_t& chunks = (*extents)[Dim::NT];
  int64_t& slots = (*extents)[Dim::slots];
  if (chunks == kUnknown) chunks = packed ? tokens / chunk + sequences : ceil_div(tokens, chunk);
  if (slots == kUnknown) slots = kda_slots(packed, sequences, tokens);
}

Status check_kda_values(const Values& values) {
  if (!values.has(kda::cu_seqlens)) return {};
  LATHE_TRY(check_pool_values(values, kOfKda));
  const std::vector<int64_t> offsets = values.integers(kda::cu_seqlens);
  const int64_t chunk = chunk_size(values.problem());
  int64_t chunks = 0;
  for (size_t n = 1; n < offsets.size(); ++n)
    chunks += ceil_div(offsets[n] - offsets[n - 1], chunk);
  values.set(Dim::NT, chunks);
  return {};
}

// A call has no more tokens of a sequence than a slot has records, and no count is past them.
Status check_kda_rings(const Values& values, const PoolTensors& tensors, int ring_count) {
  if (!values.has(ring_count)) return {};
  const int64_t length = values[Dim::L];
  const std::vector<int64_t> counts = values.integers(ring_count);
  for (size_t slot = 0; slot < counts.size(); ++slot) {
    if (counts[slot] >= 0 && counts[slot] <= length) continue;
    return invalid(text("ring_count holds ", counts[slot], " at entry ", slot,
                        "; allowed are 0 to L = ", length));
  }
  if (!values.has(tensors.state_indices)) return {};
  const SlotValues slots(values, tensors);
  const std::vector<int64_t> tokens = sequence_lengths(values, tensors.cu_seqlens, slots.sequences);
  for (size_t n = 0; n < tokens.size(); ++n) {
    if (tokens[n] <= length || slots.is_padding(n)) continue;
    return invalid(text("sequence ", n, " has ", tokens[n], " tokens and ring_k has L = ", length,
                        "; allowed are up to L, a record for each token"));
  }
  return {};
}

Status check_kda_recurrent_values(const Values& values) {
  LATHE_TRY(check_pool_values(values, kOfRecurrent));
  return check_kda_rings(values, kOfRecurrent, kda_recurrent::ring_count);
}

}  // namespace lathe
