// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Answers cases about rings, gathered keys and visible ranges. The answers are views of the plans
// that ranks execute.
#include <algorithm>
#include <climits>
#include <cmath>

#include "api/shard_cases.h"
#include "codegen/base/printable.h"
#include "codegen/base/text.h"
#include "collective/plans/attention_rounds.h"
#include "collective/plans/key_gather.h"

namespace lathe::kinds {
namespace {

constexpr const char* kRangeWords[] = {"none", "full", "partial"};

Json rank_or_null(int rank) { return rank == kNoRank ? Json() : Json(rank); }

Interval interval_of(const PlanCase& input, const char* name) {
  const std::vector<int64_t> found = input.integers(name, -INT_MAX, INT_MAX);
  if (found.size() != 2 || found[1] < found[0] || found[1] - found[0] > INT_MAX) {
    throw Refused(text(name, " is ", shown(input.at(name)), "; allowed is [begin, end] of 0 to ",
                       INT_MAX, " tokens"));
  }
  return {found[0], found[1]};
}

// Returns one step of the ring that runs, on shards of `tokens` rows and keys. It has at most one
// attention range: both halves of a head-tail shard, or one of them. The neighbours are those of a
// ring in which every block meets every rank; `keys_sent_to` and `gradients_sent_to` name the
// receivers of the messages that are executed.
Json words_of_step(const AttentionRounds& rounds, int step, int32_t tokens) {
  const AttentionRound& round = rounds.rounds[step];
  const int world = rounds.world, next = (rounds.rank + 1) % world;
  const int last = (rounds.rank - 1 + world) % world;
  const bool hop = step + 1 < world, ring = world > 1;
  const auto span = [&](int32_t begin, int32_t end) {
    return begin > 0 ? "hi" : end < tokens ? "lo" : "all";
  };
  Json q, kv;
  const char* mask = "skip";
  if (!round.ranges.empty()) {
    const AttentionRange& range = round.ranges.front();
    q = span(range.qa, range.qb), kv = span(range.ka, range.kb);
    const int64_t all = int64_t{range.qb - range.qa} * (range.kb - range.ka);
    mask = round.visible == all ? "full" : "causal";
  }
  return {{"rank", rounds.rank},
          {"step", step},
          {"owner", round.owner},
          {"send_to", rank_or_null(hop ? next : kNoRank)},
          {"recv_from", rank_or_null(hop ? last : kNoRank)},
          {"q", q},
          {"kv", kv},
          {"mask", mask},
          {"dkv_send_to", rank_or_null(ring ? next : kNoRank)},
          {"dkv_recv_from", rank_or_null(ring ? last : kNoRank)},
          {"dkv_recv_owner", rank_or_null(ring ? (last - step + world) % world : kNoRank)},
          {"keys_sent_to", rank_or_null(round.send_keys.peer)},
          {"gradients_sent_to", rank_or_null(round.send_gradients.peer)}};
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

}  // namespace

// The sequence has as many tokens on every rank.
Json ring_schedule(const PlanCase& input) {
  constexpr int kTokens = 4;  // of a shard: two in each half
  LayoutOptions options;
  options.world = input.world();
  options.balance = accepted(balance_of(input.word("balance")));
  options.length = int64_t{kTokens} * options.world;
  if (options.balance != Balance::none && options.balance != Balance::head_tail) {
    throw Refused(text("balance is ", shown(input.at("balance")), "; allowed are none, head_tail"));
  }
  input.list("steps", int64_t{options.world} * options.world, kFields);
  const Layout layout = accepted(make_layout(options));
  const VisibleRange range = input.flag("causal") ? kCausal : VisibleRange{};
  Json steps = Json::array();
  for (int rank = 0; rank < options.world; ++rank) {
    const auto rounds = accepted(attention_rounds(layout, rank, Rotation::ring, range));
    for (int step = 0; step < options.world; ++step) {
      steps.push_back(words_of_step(rounds, step, kTokens));
    }
  }
  return {{"steps", steps}};
}

Json range_rule(const PlanCase& input) {
  const int64_t left = input.integer("left", -1, INT_MAX);  // -1: none
  const int64_t right = input.integer("right", -1, INT_MAX);
  const RangeRule rule =
      lathe::range_rule(interval_of(input, "q"), interval_of(input, "kv"),
                        input.integer("offset", -INT_MAX, INT_MAX), {left, right});
  return {{"kind", kRangeWords[static_cast<int>(rule.kind)]},
          {"shift", rule.shift},
          {"visible", rule.visible}};
}

// Contiguous rows with gathered keys are packed attention over one slice of the keys' axis.
Json gather_slices(const PlanCase& input) {
  LayoutOptions options;
  options.world = input.world();
  input.list("ranks", options.world, kFields);
  options.cu_seqlens = input.cu_seqlens();
  options.length = options.cu_seqlens.back();
  const Layout layout = accepted(make_layout(options));
  Json ranks = Json::array();
  for (int rank = 0; rank < options.world; ++rank) {
    const std::vector<KeyRun> runs = key_runs(layout, rank, input.flag("causal"));
    std::vector<int64_t> rows = {0}, keys = {0}, sequences;
    for (const KeyRun& run : runs) {
      rows.push_back(run.rows_end), keys.push_back(run.keys_end);
      sequences.push_back(run.sequence);
    }
    const int64_t start = runs.empty() ? 0 : runs.front().origin;
    ranks.push_back({{"rank", rank},
                     {"seq_ids", sequences},
                     {"cu_seqlens_q", rows},
                     {"cu_seqlens_k", keys},
                     {"k_start", start},
                     {"k_end", start + keys.back()}});
  }
  return {{"ranks", ranks}};
}

// Joins partial results, (out, natural logarithm of the sum of exponentials), in their order, as
// the kernels join them: a part of lse -inf has no weight, whatever its out holds.
Json merge(const PlanCase& input) {
  double out = 0, lse = -HUGE_VAL;
  for (const Json& part : input.at("parts")) {
    const double other = number_of(part.at(0)), other_lse = number_of(part.at(1));
    const double most = std::max(lse, other_lse);
    if (most == -HUGE_VAL) continue;
    const double a = std::exp(lse - most), b = std::exp(other_lse - most), z = a + b;
    out = (a == 0 ? 0 : a / z * out) + (b == 0 ? 0 : b / z * other);
    lse = most + std::log(z);
  }
  return {{"out", word_of(out)}, {"lse", word_of(lse)}};
}

}  // namespace lathe::kinds
