// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cases about cuts of a sequence axis, rings and gathers.
#include "api/shard_cases.h"

#include <climits>
#include <cmath>

#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "collective/balance.h"
#include "collective/ring.h"

namespace lathe {
namespace {

constexpr const char* kSpanWords[] = {nullptr, "all", "lo", "hi"};
constexpr const char* kMaskWords[] = {"skip", "full", "causal"};
constexpr const char* kPairWords[] = {"none", "full", "partial"};

Json word_or_null(const char* word) { return word ? Json(word) : Json(); }
Json rank_or_null(int rank) { return rank == kNoRank ? Json() : Json(rank); }
Json words(const Interval& interval) { return {interval.begin, interval.end}; }

// Numbers of JSON that a thing with named fields takes the memory of.
constexpr int64_t kFields = 64;

Interval interval_of(const PlanCase& input, const char* name) {
  const std::vector<int64_t> found = input.integers(name, -INT_MAX, INT_MAX);
  if (found.size() != 2 || found[1] < found[0] || found[1] - found[0] > INT_MAX) {
    throw Refused(text(name, " is ", shown(input.at(name)), "; allowed is [begin, end] of 0 to ",
                       INT_MAX, " tokens"));
  }
  return {found[0], found[1]};
}

// Whether parts are twice the ranks; `other` is what the second layout is called.
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

// The fields of flash-linear-attention, for one part of a rank or for its two.
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

// As strict as flash-linear-attention: equal parts, and a token for every rank.
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
    return {{"groups", accepted(ptrr_groups(cost, world, strict))}};
  }
  const Balance balance = accepted(balance_of(kind));
  const std::vector<int64_t> cu_seqlens = input.cu_seqlens();
  const int64_t block_size = balance == Balance::ptrr ? input.integer("block_size", 1, INT_MAX) : 1;
  input.list("tokens", cu_seqlens.back(), 3);  // with what a block of each may cost
  input.list("ranks", world, 2);
  const auto layout = accepted(shard_layout(balance, cu_seqlens, world, block_size, strict));
  const std::vector<int64_t> indices = shard_indices(layout);
  Json out = {{"indices", indices},
              {"restore", inverse_permutation(indices)},
              {"rank_lengths", shard_lengths(layout)}};
  if (balance == Balance::ptrr) out["block_cost"] = causal_block_costs(cu_seqlens, block_size);
  return out;
}

Json schedule_of_ring(const PlanCase& input) {
  const int world = input.world();
  const Balance balance = accepted(balance_of(input.word("balance")));
  if (balance != Balance::none && balance != Balance::head_tail) {
    throw Refused(text("balance is ", shown(input.at("balance")), "; allowed are none, head_tail"));
  }
  const bool head_tail = balance == Balance::head_tail;
  input.list("steps", int64_t{world} * world, kFields);
  Json steps = Json::array();
  for (const RingStep& step : ring_schedule(world, input.flag("causal"), head_tail)) {
    steps.push_back({{"rank", step.rank},
                     {"step", step.step},
                     {"owner", step.owner},
                     {"send_to", rank_or_null(step.send_to)},
                     {"recv_from", rank_or_null(step.recv_from)},
                     {"q", word_or_null(kSpanWords[static_cast<int>(step.q)])},
                     {"kv", word_or_null(kSpanWords[static_cast<int>(step.kv)])},
                     {"mask", kMaskWords[static_cast<int>(step.mask)]},
                     {"dkv_send_to", rank_or_null(step.dkv_send_to)},
                     {"dkv_recv_from", rank_or_null(step.dkv_recv_from)},
                     {"dkv_recv_owner", rank_or_null(step.dkv_recv_owner)}});
  }
  return {{"steps", steps}};
}

Json rule_of_pair(const PlanCase& input) {
  const int64_t left = input.integer("left", -1, INT_MAX);  // -1: none
  const int64_t right = input.integer("right", -1, INT_MAX);
  const PairRule rule = pair_rule(interval_of(input, "q"), interval_of(input, "kv"),
                                  input.integer("offset", -INT_MAX, INT_MAX), left, right);
  return {{"kind", kPairWords[static_cast<int>(rule.kind)]},
          {"shift", rule.shift},
          {"visible", rule.visible}};
}

Json slices_of_gather(const PlanCase& input) {
  input.list("ranks", input.world(), kFields);
  const auto slices =
      accepted(gather_slices(input.cu_seqlens(), input.world(), input.flag("causal")));
  Json ranks = Json::array();
  for (size_t rank = 0; rank < slices.size(); ++rank) {
    const GatherSlice& slice = slices[rank];
    ranks.push_back({{"rank", rank},
                     {"seq_ids", slice.seq_ids},
                     {"cu_seqlens_q", slice.cu_seqlens_q},
                     {"cu_seqlens_k", slice.cu_seqlens_k},
                     {"k_start", slice.keys.begin},
                     {"k_end", slice.keys.end}});
  }
  return {{"ranks", ranks}};
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
    if (partition.part(part).size() == 0) return;
    Json halo = Json::array();
    for (const HaloRow& row :
         conv_halo_rows(cu_seqlens, partition, part, static_cast<int>(width))) {
      halo.push_back(row.initial ? Json{"init", row.sequence, row.slot} : Json{"x", row.position});
    }
    parts.push_back({{"rank", rank}, {"interval", words(partition.part(part))}, {"halo", halo}});
  };
  for (int rank = 0; rank < world; ++rank) {
    add(rank, rank);
    if (folded) add(rank, 2 * world - 1 - rank);
  }
  return {{"parts", parts}};
}

// JSON has no infinities: they are words.
double number_of(const Json& value) {
  if (!value.is_string()) return value.get<double>();
  const auto word = value.get<std::string>();
  if (word == "-inf") return -HUGE_VAL;
  if (word == "inf") return HUGE_VAL;
  if (word == "nan") return NAN;
  throw Refused(text(in_quotes(word), " is no number; allowed words are -inf, inf, nan"));
}
Json word_of(double value) {
  if (std::isnan(value)) return "nan";
  return std::isinf(value) ? Json(value < 0 ? "-inf" : "inf") : Json(value);
}

Json merge(const PlanCase& input) {
  std::vector<PartialResult> parts;
  for (const Json& part : input.at("parts")) {
    parts.push_back({number_of(part.at(0)), number_of(part.at(1))});
  }
  const PartialResult sum = merge_partials(parts);
  return {{"out", word_of(sum.out)}, {"lse", word_of(sum.lse)}};
}

}  // namespace

const ShardKind kShardKinds[8] = {
    {"cp_context", cp_context},  {"cp_context_ragged", cp_context_ragged},
    {"balancers", balancers},    {"ring_schedule", schedule_of_ring},
    {"pair_rule", rule_of_pair}, {"gather_slices", slices_of_gather},
    {"conv_halo", conv_halo},    {"merge", merge},
};

}  // namespace lathe
