// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cuts host tensors along their tokens and their chunks.
#include "api/cli/inputs/slices.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace lathe::cli {
namespace {

// A tensor as `outer` rows of tokens of `token_bytes`.
struct Rows {
  size_t outer = 1, tokens = 1, token_bytes = 1;
};

Rows rows_of(const TensorSpec& spec, int dimension) {
  Rows rows;
  for (int i = 0; i < dimension; ++i) rows.outer *= spec.shape[i];
  rows.tokens = spec.shape[dimension];
  rows.token_bytes = info(spec.dtype).bytes;
  for (size_t i = dimension + 1; i < spec.shape.size(); ++i) rows.token_bytes *= spec.shape[i];
  return rows;
}

// Calls `copy` with the place of each run of bytes in the whole and in the part.
template <typename Copy>
void for_each_run(const Rows& rows, const Intervals& intervals, Copy copy) {
  size_t part = 0;
  for (size_t row = 0; row < rows.outer; ++row) {
    for (const auto& [begin, end] : intervals) {
      const size_t bytes = static_cast<size_t>(end - begin) * rows.token_bytes;
      if (bytes == 0) continue;
      copy((row * rows.tokens + static_cast<size_t>(begin)) * rows.token_bytes, part, bytes);
      part += bytes;
    }
  }
}

// 0 without the option, and for what is no number, which the library refuses.
int64_t chunk_size(const Problem& problem) {
  return std::strtoll(setting(problem, "chunk_size").c_str(), nullptr, 10);
}

// Returns the offsets that cut chunks, among all tokens of a row; empty: no states are asked for.
std::vector<int64_t> cuts_of_chunks(const Problem& problem, const TensorMap& inputs) {
  if (chunk_size(problem) <= 0 || !problem.outputs.contains("chunk_states")) return {};
  if (inputs.contains("cu_seqlens")) return integers(inputs, "cu_seqlens");
  return {0, problem.extents.at("T")};
}

}  // namespace

Intervals intervals_of(const lathe_shard* shard, lathe_axis axis) {
  const int64_t* begin_end = nullptr;
  size_t count = 0;
  check(lathe_shard_intervals(shard, axis, &begin_end, &count));
  Intervals out;
  for (size_t i = 0; i < count; ++i) out.emplace_back(begin_end[2 * i], begin_end[2 * i + 1]);
  return out;
}

int64_t tokens_in(const Intervals& intervals) {
  int64_t sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

std::vector<std::byte> cut(const HostTensor& whole, int dimension, const Intervals& intervals) {
  const Rows rows = rows_of(whole.spec, dimension);
  std::vector<std::byte> out(rows.outer * static_cast<size_t>(tokens_in(intervals)) *
                             rows.token_bytes);
  for_each_run(rows, intervals, [&](size_t from, size_t to, size_t bytes) {
    std::memcpy(out.data() + to, whole.data.data() + from, bytes);
  });
  return out;
}

void place(const std::vector<std::byte>& part, int dimension, const Intervals& intervals,
           HostTensor* whole) {
  for_each_run(rows_of(whole->spec, dimension), intervals,
               [&](size_t to, size_t from, size_t bytes) {
                 std::memcpy(whole->data.data() + to, part.data() + from, bytes);
               });
}

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
