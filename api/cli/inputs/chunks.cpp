// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How many chunks the states of chunked operators are of, and which of them a rank has.
#include "api/cli/inputs/chunks.h"

#include <algorithm>
#include <cstdlib>

namespace lathe::cli {
namespace {

const char* const kOffsets = "cu_seqlens";

// 0 without the option, and for what is no number, which the library refuses.
int64_t chunk_size(const Problem& problem) {
  return std::strtoll(setting(problem, "chunk_size").c_str(), nullptr, 10);
}

// Of all tokens of a row; empty: no states are asked for.
std::vector<int64_t> cuts_of_chunks(const Problem& problem, const TensorMap& inputs) {
  if (chunk_size(problem) <= 0 || !problem.outputs.contains("chunk_states")) return {};
  const auto offsets = inputs.find(kOffsets);
  if (offsets != inputs.end()) return integers(offsets->second);
  return {0, problem.extents.at("T")};
}

}  // namespace

std::vector<int64_t> chunk_bounds(const Problem& problem, const TensorMap& inputs, int ranks) {
  const std::vector<int64_t> cuts = cuts_of_chunks(problem, inputs);
  if (cuts.empty()) return {};
  const int64_t size = chunk_size(problem), tokens = cuts.back();
  std::vector<int64_t> bounds;
  for (int rank = 0; rank <= ranks; ++rank) {
    int64_t bound = tokens * rank / ranks;
    const auto next = std::upper_bound(cuts.begin(), cuts.end(), bound);
    if (next != cuts.end()) {
      const int64_t low = bound - (bound - *(next - 1)) % size;
      const int64_t high = std::min(low + size, *next);
      bound = bound - low <= high - bound ? low : high;
    }
    bounds.push_back(bound);
  }
  return bounds;
}

Intervals chunks_of(const Problem& problem, const TensorMap& inputs, const Intervals& tokens) {
  const std::vector<int64_t> cuts = cuts_of_chunks(problem, inputs);
  const int64_t size = chunk_size(problem);
  const auto before = [&](int64_t until) {
    int64_t chunks = 0;
    for (size_t n = 1; n < cuts.size(); ++n) {
      const int64_t count = std::min(cuts[n], until) - cuts[n - 1];
      if (count > 0) chunks += (count + size - 1) / size;
    }
    return chunks;
  };
  Intervals out;
  for (const auto& [begin, end] : tokens) {
    if (!cuts.empty()) out.emplace_back(before(begin), before(end));
  }
  return out;
}

}  // namespace lathe::cli
