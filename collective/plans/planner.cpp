// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the balancing planner. Each step moves one piece from the most to the least loaded
// rank: the piece with the most work for the bytes that it copies.
#include "collective/plans/planner.h"

#include <algorithm>
#include <climits>
#include <map>
#include <optional>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

using Wide = __int128;

struct Item {
  DocumentShard shard;
  int64_t home = 0, dst = 0;
  int64_t document = 0;  // its length
  int64_t end() const { return shard.start + shard.length; }
};

struct Candidate {
  size_t item = 0;
  bool tail = true;
  int64_t tokens = 0, pairs = 0, bytes = 0;

  // Returns true if this piece has more work for its bytes, or as much and more work in all.
  bool better_than(const Candidate& other) const {
    const Wide own = static_cast<Wide>(pairs) * other.bytes;
    const Wide others = static_cast<Wide>(other.pairs) * bytes;
    return own > others || (own == others && pairs > other.pairs);
  }
};

class Planner {
 public:
  Planner(const DocumentShards& shards, const PlannerLimits& limits)
      : limits_(limits), world_(static_cast<int64_t>(shards.size())), load_(shards.size()) {
    std::map<int64_t, int64_t> lengths = document_lengths(shards);
    for (int64_t rank = 0; rank < world_; ++rank) {
      for (const DocumentShard& shard : shards[rank]) {
        items_.push_back({shard, rank, rank, lengths[shard.document]});
        const int64_t pairs = pairs_of(items_.back(), true, shard.length);
        load_[rank] = static_cast<int64_t>(std::min<Wide>(Wide{load_[rank]} + pairs, INT64_MAX));
        total_ += pairs;
      }
    }
  }
  const std::vector<int64_t>& load() const { return load_; }
  const std::vector<Item>& items() const { return items_; }

  // Loads are counted in 64 bits.
  Status check_total() const {
    if (total_ <= INT64_MAX) return {};
    return invalid(text("the documents have ", static_cast<double>(total_),
                        " pairs of queries and keys; allowed are up to ", INT64_MAX));
  }
  // Each step looks at all shards, of which it may make one more.
  Status check_looks() const {
    constexpr int64_t kMost = int64_t{1} << 30;
    if (looks_ <= kMost) return {};
    return invalid(text("balancing ", items_.size(), " shards looks at more than ", kMost,
                        " of them, which is what is allowed: let eps or align be larger"));
  }

  // Moves one piece. Returns false if the loads are even enough or nothing fits.
  bool step() {
    const int64_t high = std::max_element(load_.begin(), load_.end()) - load_.begin();
    const int64_t low = std::min_element(load_.begin(), load_.end()) - load_.begin();
    const Wide above = static_cast<Wide>(load_[high]) * world_ - total_;
    const Wide below = total_ - static_cast<Wide>(load_[low]) * world_;
    if (above * limits_.of <= static_cast<Wide>(total_) * limits_.tolerance) return false;
    std::optional<Candidate> best = find(high, low, std::min(above, below));
    if (!best) best = find(high, low, static_cast<Wide>((load_[high] - load_[low]) / 2) * world_);
    if (!best) return false;
    move(*best, low);
    load_[high] -= best->pairs, load_[low] += best->pairs;
    return true;
  }

 private:
  // Counts the visible pairs of the `tokens` first or last tokens of an item.
  int64_t pairs_of(const Item& item, bool tail, int64_t tokens) const {
    return range_rule(rows_of(item, tail, tokens), {0, item.document}, 0, limits_.visible).visible;
  }
  static Interval rows_of(const Item& item, bool tail, int64_t tokens) {
    if (tail) return {item.end() - tokens, item.end()};
    return {item.shard.start, item.shard.start + tokens};
  }
  // Returns the end of the keys that these rows see.
  int64_t keys_end(const Item& item, const Interval& rows) const {
    return limits_.visible.keys(rows, item.document).end;
  }
  // Returns the most tokens of the item whose pairs fit into the budget: all, or a multiple of
  // `align`; 0 if none fit. The pairs increase with the tokens.
  int64_t fitting(const Item& item, bool tail, Wide budget) const {
    const auto fits = [&](int64_t tokens) {
      return static_cast<Wide>(pairs_of(item, tail, tokens)) * world_ <= budget;
    };
    if (fits(item.shard.length)) return item.shard.length;
    int64_t low = 0, high = (item.shard.length - 1) / limits_.align;
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (fits(middle * limits_.align)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low * limits_.align;
  }
  // Returns how many keys of each document are at `rank` for the queries there.
  std::map<int64_t, int64_t> keys_at(int64_t rank) const {
    std::map<int64_t, int64_t> keys;
    for (const Item& item : items_) {
      if (item.dst != rank) continue;
      int64_t& end = keys[item.shard.document];
      end = std::max(end, keys_end(item, {item.shard.start, item.end()}));
    }
    return keys;
  }
  std::optional<Candidate> find(int64_t high, int64_t low, Wide budget) const {
    std::optional<Candidate> best;
    looks_ += 2 * static_cast<int64_t>(items_.size());
    const std::map<int64_t, int64_t> there = keys_at(low);
    for (size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      if (item.dst != high || item.shard.length == 0) continue;
      const auto known = there.find(item.shard.document);
      const int64_t have = known == there.end() ? 0 : known->second;
      for (const bool tail : {true, false}) {
        if (!tail && item.shard.length <= limits_.align) continue;
        Candidate found{i, tail, fitting(item, tail, budget)};
        if (found.tokens == 0 || (!tail && found.tokens == item.shard.length)) continue;
        found.pairs = pairs_of(item, tail, found.tokens);
        const int64_t last = keys_end(item, rows_of(item, tail, found.tokens));
        found.bytes = (item.home == low ? 0 : limits_.q_bytes * found.tokens) +
                      limits_.kv_bytes * std::max<int64_t>(0, last - have);
        if (!best || found.better_than(*best)) best = found;
      }
    }
    return best;
  }
  void move(const Candidate& piece, int64_t to) {
    Item& item = items_[piece.item];
    if (piece.tokens == item.shard.length) {
      item.dst = to;
      return;
    }
    Item rest = item;  // behind the other in place
    const int64_t cut = piece.tail ? item.shard.length - piece.tokens : piece.tokens;
    rest.shard.start += cut, rest.shard.length -= cut;
    item.shard.length = cut;
    (piece.tail ? rest : item).dst = to;
    items_.insert(items_.begin() + static_cast<std::ptrdiff_t>(piece.item) + 1, rest);
  }

  PlannerLimits limits_;
  int64_t world_;
  Wide total_ = 0;
  mutable int64_t looks_ = 0;
  std::vector<int64_t> load_;
  std::vector<Item> items_;
};

Status check_limits(const PlannerLimits& limits) {
  // The products of loads with these are counted in 128 bits.
  const auto within = [](const char* name, int64_t value, int64_t least) -> Status {
    if (value >= least && value <= INT_MAX) return {};
    return invalid(text(name, " is ", value, "; allowed are ", least, " to ", INT_MAX));
  };
  LATHE_TRY(within("eps[0]", limits.tolerance, 0));
  LATHE_TRY(within("eps[1]", limits.of, 1));
  LATHE_TRY(within("align", limits.align, 1));
  LATHE_TRY(within("q_bytes", limits.q_bytes, 0));
  return within("kv_bytes", limits.kv_bytes, 0);
}

}  // namespace

Result<BalancedPlan> balance_shards(const DocumentShards& shards, const PlannerLimits& limits) {
  LATHE_TRY(check_limits(limits));
  const auto chains = document_chains(shards);
  if (!chains.ok()) return chains.status();
  Planner planner(shards, limits);
  LATHE_TRY(planner.check_total());
  BalancedPlan plan;
  plan.load_before = planner.load();
  while (planner.step()) LATHE_TRY(planner.check_looks());
  plan.load = planner.load();
  plan.shards.resize(shards.size()), plan.dst.resize(shards.size());
  for (const Item& item : planner.items()) {
    plan.shards[item.home].push_back(item.shard);
    plan.dst[item.home].push_back(item.dst);
  }
  return plan;
}

}  // namespace lathe
