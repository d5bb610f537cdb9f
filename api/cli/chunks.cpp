// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How many chunks the states of chunked operators are of.
#include <cstdlib>

#include "api/cli/problem.h"

namespace lathe::cli {
namespace {

const char* const kOffsets = "cu_seqlens";

// 0 without the option, and for what is no number, which the library refuses.
int64_t chunk_size(const Problem& problem) {
  return std::strtoll(setting(problem, "chunk_size").c_str(), nullptr, 10);
}

}  // namespace

void imply_chunks(Problem* problem) {
  const auto extent = [&](const char* letter) {
    const auto found = problem->extents.find(letter);
    return found == problem->extents.end() ? -1 : found->second;
  };
  const int64_t tokens = extent("T"), sequences = extent("N"), size = chunk_size(*problem);
  if (size <= 0 || tokens < 0 || sequences < 0) return;
  const bool packed = problem->inputs.contains(kOffsets);
  problem->extents.emplace("NT", packed ? tokens / size + sequences : (tokens + size - 1) / size);
}

void fit_chunks(Problem* problem, const TensorMap& inputs) {
  const auto offsets = inputs.find(kOffsets);
  const auto states = problem->outputs.find("chunk_states");
  const int64_t size = chunk_size(*problem);
  if (size <= 0 || offsets == inputs.end() || states == problem->outputs.end()) return;
  const std::vector<int64_t> cuts = integers(offsets->second);
  int64_t chunks = 0;
  for (size_t n = 1; n < cuts.size(); ++n) chunks += (cuts[n] - cuts[n - 1] + size - 1) / size;
  problem->extents["NT"] = states->second.shape[1] = chunks;
}

}  // namespace lathe::cli
