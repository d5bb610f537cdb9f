// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "codegen/base/integers.h"
#include "ops/kda/request.h"
#include "ops/kda/schema.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

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
  LATHE_TRY(check_kda_slots(values));
  const std::vector<int64_t> offsets = values.integers(kda::cu_seqlens);
  const int64_t chunk = chunk_size(values.problem());
  int64_t chunks = 0;
  for (size_t n = 1; n < offsets.size(); ++n)
    chunks += ceil_div(offsets[n] - offsets[n - 1], chunk);
  values.set(Dim::NT, chunks);
  return {};
}

}  // namespace lathe
