// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the plan from the homes of the tokens and, if queries move, from the planner's choice.
#include "collective/plans/dispatch_plan.h"

#include <algorithm>
#include <tuple>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

using Wide = __int128;

// Returns each rank's shards, document by document, in the order of its buffer.
DocumentShards homes_of(const Layout& layout) {
  DocumentShards out(layout.queries.size());
  for (size_t rank = 0; rank < out.size(); ++rank) {
    for (const TokenRun& run : token_runs(layout.queries[rank], layout.cu_seqlens)) {
      out[rank].push_back({run.sequence, run.positions.begin, run.positions.size()});
    }
  }
  return out;
}

// Returns where shards begin in the buffers of their ranks.
Table first_rows(const DocumentShards& shards) {
  Table out;
  for (const auto& rank : shards) {
    int64_t row = 0;
    auto& rows = out.emplace_back();
    for (const DocumentShard& shard : rank) {
      rows.push_back(row);
      row += shard.length;
    }
  }
  return out;
}

// Holds a copy of (a part of) this shard of its source.
struct ShardCopy {
  int64_t shard = 0;
  RowCopy move;
};

// Orders the copies between two ranks by the source's shards, and joins neighbours.
RowCopies in_order(std::vector<ShardCopy> copies) {
  const auto place = [](const ShardCopy& each) {
    return std::tuple(each.move.from, each.move.to, each.shard);
  };
  std::stable_sort(copies.begin(), copies.end(),
                   [&](const ShardCopy& a, const ShardCopy& b) { return place(a) < place(b); });
  RowCopies out;
  for (const ShardCopy& each : copies) out.push_back(each.move);
  return joined(out);
}

// Adds the ranges of one destination, and joins neighbours in a document.
void add_pairs(const DocumentShards& shards, const SharedContext& context, DispatchPlan* plan) {
  std::vector<AttentionRange>& out = plan->ranges.emplace_back();
  std::vector<int32_t>& documents = plan->documents.emplace_back();
  for (const SharedContext::Query& q : context.queries) {
    const DocumentShard& shard = shards[q.rank][q.shard];
    if (q.q_length == 0) continue;
    const auto word = [](int64_t value) { return static_cast<int32_t>(value); };
    const int32_t q_end = word(q.q_offset + q.q_length), k_end = word(q.k_offset + q.k_length);
    if (!out.empty() && documents.back() == shard.document &&
        out.back().q0 + (out.back().qb - out.back().qa) == shard.start) {
      out.back().qb = q_end, out.back().kb = k_end;
      continue;
    }
    out.push_back({word(q.q_offset), q_end, word(q.k_offset), k_end, word(shard.start - q.k_start),
                   word(shard.start), word(q.k_start)});
    documents.push_back(word(shard.document));
  }
}

// Places gradients of keys in the order of attention ranks, each rank's in the order of its keys'
// copies.
void place_gradients(DispatchPlan* plan) {
  const size_t world = plan->query_tokens.size();
  plan->slot_tokens.assign(world, 0);
  for (size_t at = 0; at < world; ++at) {
    for (const RowCopy& keys : plan->keys) {
      if (keys.to != static_cast<int>(at) || keys.from == keys.to) continue;
      int64_t& slot = plan->slot_tokens[keys.from];
      plan->gradients.push_back({keys.to, keys.from, keys.to_row, slot, keys.rows});
      slot += keys.rows;
    }
  }
}

DispatchPlan tables_of(const DocumentShards& shards, const Table& dst,
                       const VisibleRange& visible) {
  const auto world = static_cast<int>(shards.size());
  const Table row = first_rows(shards);
  std::vector<ShardCopy> queries, keys;
  DispatchPlan plan;
  const auto contexts = shared_contexts(shards, dst, visible);
  for (int at = 0; at < world; ++at) {
    const SharedContext& context = contexts[at];
    for (const auto& q : context.queries) {
      const RowCopy move{static_cast<int>(q.rank), at, row[q.rank][q.shard], q.q_offset,
                         q.q_length};
      queries.push_back({q.shard, move});
      plan.moved = plan.moved || (q.rank != at && q.q_length > 0);
    }
    for (const auto& k : context.keys) {
      const RowCopy move{static_cast<int>(k.rank), at, row[k.rank][k.shard] + k.skip, k.offset,
                         k.length};
      keys.push_back({k.shard, move});
    }
    plan.query_tokens.push_back(context.q_tokens);
    plan.key_tokens.push_back(context.kv_tokens);
    add_pairs(shards, context, &plan);
  }
  plan.queries = in_order(std::move(queries));
  plan.keys = in_order(std::move(keys));
  place_gradients(&plan);
  // Keys and values are two tensors.
  plan.packs = most_between(plan.queries) + 2 * most_between(plan.keys) > kMostMessages;
  return plan;
}

struct Traffic {
  std::vector<int64_t> bytes, tokens;  // sent or received, whichever is more; tokens received
};
Traffic traffic_of(const DispatchPlan& plan, const PlannerLimits& limits) {
  const size_t world = plan.query_tokens.size();
  std::vector<int64_t> in(world), out(world), tokens(world);
  const auto count = [&](const RowCopies& copies, int64_t bytes) {
    for (const RowCopy& move : copies) {
      if (move.from == move.to) continue;
      out[move.from] += move.rows * bytes, in[move.to] += move.rows * bytes;
      tokens[move.to] += move.rows;
    }
  };
  count(plan.queries, limits.q_bytes);
  count(plan.keys, limits.kv_bytes);
  for (size_t i = 0; i < world; ++i) in[i] = std::max(in[i], out[i]);
  return {in, tokens};
}

int64_t most(const std::vector<int64_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

Status check_layout(const Layout& layout) {
  constexpr int kMost = 2048;  // the tables of a plan have an entry for every two ranks
  if (layout.world() > kMost) {
    return invalid(
        text("dispatch: the world has ", layout.world(), " ranks; allowed are 1 to ", kMost));
  }
  if (layout.keys == layout.queries && layout.cu_seqlens == layout.cu_seqlens_k) return {};
  return invalid(text("dispatch: keys are ", layout.key_length, " tokens and queries ",
                      layout.length,
                      "; allowed are keys that are the queries' own tokens, sequence by sequence"));
}

Status check_tokens(const Traffic& traffic, int64_t limit) {
  for (size_t rank = 0; rank < traffic.tokens.size(); ++rank) {
    if (limit == 0 || traffic.tokens[rank] <= limit) continue;
    return invalid(text("dispatch: rank ", rank, " would receive ", traffic.tokens[rank],
                        " tokens of queries and keys; the limit is ", limit));
  }
  return {};
}

}  // namespace

int64_t dispatch_alignment(int64_t length, int world) {
  int64_t align = 1;
  while (align < 128 && align * 2 * 16 * world <= length) align *= 2;
  return align;
}

Result<DispatchPlan> plan_dispatch(const Layout& layout, const DispatchRules& rules) {
  LATHE_TRY(check_layout(layout));
  const DocumentShards homes = homes_of(layout);
  const VisibleRange& visible = rules.limits.visible;
  LATHE_ASSIGN(const BalancedPlan balanced, balance_shards(homes, rules.limits));
  Table stay(homes.size());
  for (size_t rank = 0; rank < homes.size(); ++rank) {
    stay[rank].assign(homes[rank].size(), static_cast<int64_t>(rank));
  }
  DispatchPlan home = tables_of(homes, stay, visible);
  home.load = home.load_at_home = balanced.load_before;
  const Traffic at_home = traffic_of(home, rules.limits);
  const Status fits_at_home = check_tokens(at_home, rules.most_tokens);
  if (rules.choice == DispatchChoice::home) {
    LATHE_TRY(fits_at_home);
    return home;
  }
  DispatchPlan moved = tables_of(balanced.shards, balanced.dst, visible);
  moved.load = balanced.load, moved.load_at_home = balanced.load_before;
  const Traffic moving = traffic_of(moved, rules.limits);
  if (!check_tokens(moving, rules.most_tokens).ok()) {
    LATHE_TRY(fits_at_home);
    return home;
  }
  const auto cost = [&](const DispatchPlan& plan, const Traffic& traffic) {
    return static_cast<Wide>(most(plan.load)) * rules.pair_cost +
           static_cast<Wide>(most(traffic.bytes)) * rules.byte_cost;
  };
  const bool pays = cost(moved, moving) < cost(home, at_home);
  return rules.choice == DispatchChoice::always || pays ? moved : home;
}

DispatchSum dispatch_sum(const DispatchPlan& plan, int rank, int64_t tokens) {
  std::vector<std::vector<int32_t>> terms(tokens);
  const auto add = [&](int64_t token, int64_t row, int64_t count) {
    for (int64_t i = 0; i < count; ++i) terms[token + i].push_back(static_cast<int32_t>(row + i));
  };
  const int world = static_cast<int>(plan.query_tokens.size());
  int64_t slot = 0;
  for (int at = 0; at < world; ++at) {
    for (const RowCopy& keys : plan.keys) {
      if (keys.from != rank || keys.to != at) continue;
      const bool own = at == rank;
      add(keys.from_row, own ? plan.slot_tokens[rank] + keys.to_row : slot, keys.rows);
      if (!own) slot += keys.rows;
    }
  }
  DispatchSum out;
  out.first.push_back(0);
  for (const auto& each : terms) {
    out.terms.insert(out.terms.end(), each.begin(), each.end());
    out.first.push_back(static_cast<int32_t>(out.terms.size()));
  }
  return out;
}

}  // namespace lathe
