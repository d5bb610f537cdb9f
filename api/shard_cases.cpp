// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Answers cases about cuts of a sequence axis.
#include "api/shard_cases.h"

#include <algorithm>
#include <climits>
#include <cmath>

#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "collective/plans/balance.h"

namespace lathe::kinds {
namespace {

// True if there are two parts per rank; `other` is what the second layout is called.
bool is_folded(const PlanCase& input, const char* other) {
  const std::string layout = input.word("layout");
  if (layout != "contiguous" && layout != other) {
    throw Refused(text("layout is ", in_quotes(layout), "; allowed are contiguous, ", other));
  }
  return layout == other;
}

// The parts of either layout, each with the rank that holds it.
std::vector<PartContext> contexts_of(const std::vector<int64_t>& cu_seqlens, int world,
                                     bool folded) {
  auto contexts = accepted(
      part_contexts(cu_seqlens, even_partition(cu_seqlens.back(), folded ? 2 * world : world)));
  for (PartContext& context : contexts) {
    if (folded) context.rank = head_tail_rank(context.part, world);
  }
  return contexts;
}

// Returns the fields of flash-linear-attention, for one part of a rank or for its two.
Json contiguous_fields(const PartContext& part) {
  return {{"rank", part.rank},
          {"cu_seqlens", part.cu_seqlens},
          {"pre_num_ranks", part.pre},
          {"post_num_ranks", part.post},
          {"is_first_rank", part.is_first},
          {"is_last_rank", part.is_last},
          {"pre_num_conv_tokens", part.pre_tokens},
          {"seq_ids", part.seq_ids}};
}
Json zigzag_fields(const PartContext& front, const PartContext& back) {
  std::vector<int64_t> cu_seqlens = front.cu_seqlens;
  std::vector<int> seq_ids = front.seq_ids;
  for (size_t i = 1; i < back.cu_seqlens.size(); ++i) {
    cu_seqlens.push_back(back.cu_seqlens[i] + front.interval.size());
  }
  seq_ids.insert(seq_ids.end(), back.seq_ids.begin(), back.seq_ids.end());
  return {{"rank", front.rank},
          {"cu_seqlens", cu_seqlens},
          {"part_len", front.interval.size()},
          {"front_num_seqs", front.seq_ids.size()},
          {"pre_num_ranks_by_part", {front.pre, back.pre}},
          {"post_num_ranks_by_part", {front.post, back.post}},
          {"is_first_by_part", {front.is_first, back.is_first}},
          {"is_last_by_part", {front.is_last, back.is_last}},
          {"pre_num_conv_tokens_by_part", {front.pre_tokens, back.pre_tokens}},
          {"seq_ids", seq_ids}};
}

// As strict as the balancers of torch: refuses what does not divide.
void require_multiple(const std::string& what, int64_t length, int64_t factor, const char* name) {
  if (length % factor == 0) return;
  throw Refused(text(what, " ", length, ", which is not a multiple of ", name, " = ", factor));
}
void require_divisible(Balance balance, const std::vector<int64_t>& cu_seqlens, int world,
                       int64_t block_size) {
  const int64_t length = cu_seqlens.back(), twice = int64_t{2} * world;
  switch (balance) {
    case Balance::none:
      return require_multiple("the length is", length, world, "world_size");
    case Balance::head_tail:
      return require_multiple("the length is", length, twice, "2 * world_size");
    case Balance::per_document:
      for (size_t n = 0; n + 1 < cu_seqlens.size(); ++n) {
        require_multiple(text("document ", n, " has length"), cu_seqlens[n + 1] - cu_seqlens[n],
                         twice, "2 * world_size");
      }
      return;
    case Balance::ptrr:
      require_multiple("the length is", length, block_size, "block_size");
      require_multiple("the number of blocks is", length / block_size, world, "world_size");
  }
}

// Returns the rows before a part, oldest first: slots of the initial state, then tokens of other
// parts.
Json words_of_halo(const std::vector<int64_t>& cu_seqlens, int64_t begin, int64_t width) {
  const auto next = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), begin);
  const int64_t start = *(next - 1);
  Json out = Json::array();
  for (int64_t at = begin - width + 1; at < begin; ++at) {
    out.push_back(at < start ? Json{"init", next - 1 - cu_seqlens.begin(), width + at - start}
                             : Json{"x", at});
  }
  return out;
}

}  // namespace

// Refuses what flash-linear-attention refuses: unequal parts, and fewer tokens than ranks.
Json cp_context(const PlanCase& input) {
  const bool folded = is_folded(input, "zigzag");
  const int world = input.world();
  const std::vector<int64_t> cu_seqlens = input.cu_seqlens();
  const int64_t tokens = cu_seqlens.back(), parts = int64_t{folded ? 2 : 1} * world;
  if (tokens < world) {
    throw Refused(text("there are ", tokens, " tokens; must be at least world_size = ", world));
  }
  if (tokens % parts != 0) {
    throw Refused(text("there are ", tokens, " tokens; must be a multiple of ",
                       folded ? "2 * world_size = " : "world_size = ", parts));
  }
  input.list("parts", parts, kFields);
  const auto contexts = contexts_of(cu_seqlens, world, folded);
  Json ranks = Json::array();
  for (int rank = 0; rank < world; ++rank) {
    ranks.push_back(folded ? zigzag_fields(contexts[rank], contexts[2 * world - 1 - rank])
                           : contiguous_fields(contexts[rank]));
  }
  return {{"ranks", ranks}};
}

Json cp_context_ragged(const PlanCase& input) {
  const bool folded = is_folded(input, "head_tail");
  const int world = input.world();
  input.list("parts", int64_t{folded ? 2 : 1} * world, kFields);
  const auto contexts = contexts_of(input.cu_seqlens(), world, folded);
  Json parts = Json::array();
  std::vector<int64_t> bounds = {0};
  for (const PartContext& part : contexts) {
    bounds.push_back(part.interval.end);
    parts.push_back({{"part", part.part},
                     {"rank", part.rank},
                     {"cu_seqlens", part.cu_seqlens},
                     {"seq_ids", part.seq_ids},
                     {"pre", part.pre},
                     {"post", part.post},
                     {"is_first", part.is_first},
                     {"is_last", part.is_last},
                     {"pre_tokens", part.pre_tokens}});
  }
  return {{"part_bounds", bounds}, {"parts", parts}};
}

Json balancers(const PlanCase& input) {
  const std::string kind = input.word("kind");
  const int world = input.world();
  const bool strict = input.flag("strict");
  if (kind == "ptrr_groups") {
    const std::vector<int64_t> cost = input.integers("cost", 0, INT64_MAX);
    input.list("ranks", world, 2);
    if (strict) require_multiple("the number of blocks is", cost.size(), world, "world_size");
    return {{"groups", ptrr_groups(cost, world)}};
  }
  const Balance balance = accepted(balance_of(kind));
  const std::vector<int64_t> cu_seqlens = input.cu_seqlens();
  const int64_t block_size = balance == Balance::ptrr ? input.integer("block_size", 1, INT_MAX) : 1;
  input.list("tokens", cu_seqlens.back(), 3);  // with what a block of each may cost
  input.list("ranks", world, 2);
  if (strict) require_divisible(balance, cu_seqlens, world, block_size);
  // Positions in the order of the rearranged tensor, rank 0's first; and where each of them is.
  std::vector<int64_t> indices, restore(static_cast<size_t>(cu_seqlens.back())), lengths;
  for (const auto& rank : accepted(shard_layout(balance, cu_seqlens, world, block_size))) {
    lengths.push_back(total_size(rank));
    for (const Interval& interval : rank) {
      for (int64_t t = interval.begin; t < interval.end; ++t) {
        restore[t] = static_cast<int64_t>(indices.size());
        indices.push_back(t);
      }
    }
  }
  Json out = {{"indices", indices}, {"restore", restore}, {"rank_lengths", lengths}};
  if (balance == Balance::ptrr) out["block_cost"] = causal_block_costs(cu_seqlens, block_size);
  return out;
}

Json conv_halo(const PlanCase& input) {
  constexpr int64_t kLeastWidth = 2, kMostWidth = 8;
  const bool folded = is_folded(input, "head_tail");
  const int world = input.world();
  const std::vector<int64_t> cu_seqlens = input.cu_seqlens();
  const int64_t width = input.integer("width", kLeastWidth, kMostWidth);
  input.list("parts", int64_t{folded ? 2 : 1} * world, kFields);
  const Partition partition = even_partition(cu_seqlens.back(), folded ? 2 * world : world);
  Json parts = Json::array();
  const auto add = [&](int rank, int part) {
    const Interval own = partition.part(part);
    if (own.size() == 0) return;
    parts.push_back({{"rank", rank},
                     {"interval", {own.begin, own.end}},
                     {"halo", words_of_halo(cu_seqlens, own.begin, width)}});
  };
  for (int rank = 0; rank < world; ++rank) {
    add(rank, rank);
    if (folded) add(rank, 2 * world - 1 - rank);
  }
  return {{"parts", parts}};
}

}  // namespace lathe::kinds
