// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Balances a sequence axis over ranks. Integers only.
#include "collective/plans/balance.h"

#include <algorithm>
#include <numeric>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"

namespace lathe {
namespace {

void append(Interval interval, std::vector<Interval>* to) {
  if (interval.size() > 0) to->push_back(interval);
}

Status check_count(const char* what, int64_t count) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (count <= kMost) return {};
  return invalid(text("the layout has ", count, " ", what, "; allowed are ", kMost));
}

// Deals chunks r and 2W - 1 - r of [begin, end) to rank r. A document of fewer tokens than chunks
// has mostly empty chunks, which are skipped, so the loop runs at most once for each token.
void deal_head_tail(Interval document, int world, ShardLayout* layout) {
  const int64_t parts = int64_t{2} * world, tokens = document.size();
  for (int64_t i = 0; i < std::min(tokens, parts); ++i) {
    // The chunk that holds token i is the last one that begins at or before it.
    const int64_t part = tokens < parts ? ((i + 1) * parts - 1) / tokens : i;
    append(chunk(part, document.begin, tokens, parts),
           &(*layout)[head_tail_rank(static_cast<int>(part), world)]);
  }
}

// Returns the largest number of intervals that per_document can make.
int64_t documents_intervals(const std::vector<int64_t>& cu_seqlens, int world) {
  int64_t out = 0;
  for (size_t n = 0; n + 1 < cu_seqlens.size(); ++n) {
    out += std::min(cu_seqlens[n + 1] - cu_seqlens[n], int64_t{2} * world);
  }
  return out;
}

Result<ShardLayout> deal_blocks(const std::vector<int64_t>& cu_seqlens, int world,
                                int64_t block_size) {
  if (block_size < 1) {
    return invalid(text("block_size is ", block_size, "; allowed are 1 and more"));
  }
  const int64_t length = cu_seqlens.back();
  LATHE_TRY(check_count("blocks", length / block_size + (length % block_size != 0)));
  const auto groups = ptrr_groups(causal_block_costs(cu_seqlens, block_size), world);
  ShardLayout layout(world);
  for (int rank = 0; rank < world; ++rank) {
    for (const int64_t block : groups[rank]) {
      append({block * block_size, std::min(length, (block + 1) * block_size)}, &layout[rank]);
    }
  }
  return layout;
}

}  // namespace

Result<Balance> balance_of(const std::string& word) {
  if (word == "none") return Balance::none;
  if (word == "head_tail") return Balance::head_tail;
  if (word == "per_document") return Balance::per_document;
  if (word == "ptrr") return Balance::ptrr;
  return invalid(
      text("balance is ", in_quotes(word), "; allowed are none, head_tail, per_document, ptrr"));
}

Result<ShardLayout> shard_layout(Balance balance, const std::vector<int64_t>& cu_seqlens, int world,
                                 int64_t block_size) {
  LATHE_TRY(check_world(world));
  LATHE_TRY(check_cu_seqlens(cu_seqlens, -1));
  const int64_t length = cu_seqlens.back();
  ShardLayout layout(world);
  switch (balance) {
    case Balance::none:
      for (int rank = 0; rank < world; ++rank) {
        append(chunk(rank, 0, length, world), &layout[rank]);
      }
      break;
    case Balance::head_tail:
      deal_head_tail({0, length}, world, &layout);
      break;
    case Balance::per_document:
      LATHE_TRY(check_count("intervals", documents_intervals(cu_seqlens, world)));
      for (size_t n = 0; n + 1 < cu_seqlens.size(); ++n) {
        deal_head_tail({cu_seqlens[n], cu_seqlens[n + 1]}, world, &layout);
      }
      break;
    case Balance::ptrr:
      return deal_blocks(cu_seqlens, world, block_size);
  }
  return layout;
}

std::vector<int64_t> causal_block_costs(const std::vector<int64_t>& cu_seqlens,
                                        int64_t block_size) {
  std::vector<int64_t> costs;
  const int64_t length = cu_seqlens.back();
  size_t document = 0;
  for (int64_t first = 0; first < length; first += block_size) {
    while (cu_seqlens[document + 1] <= first) ++document;
    // Rows see from the start of their document to themselves: together, all keys from the start
    // of the first row's document to the block's end.
    costs.push_back(first / block_size - cu_seqlens[document] / block_size + 1);
  }
  return costs;
}

std::vector<std::vector<int64_t>> ptrr_groups(const std::vector<int64_t>& cost, int world) {
  const auto count = static_cast<int64_t>(cost.size());
  std::vector<int64_t> order(cost.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return cost[a] > cost[b]; });
  std::vector<std::vector<int64_t>> groups(world);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = i % world;
    groups[i / world % 2 == 0 ? place : world - 1 - place].push_back(order[i]);
  }
  for (auto& group : groups) std::sort(group.begin(), group.end());
  return groups;
}

}  // namespace lathe
