// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Answers cases about shards that are computed elsewhere than they live. The answers show the
// shared contexts that a dispatch executes, in the tables of Zhuang et al. (DistCA, 2025).
#include <algorithm>
#include <numeric>

#include "api/dispatch_tables.h"
#include "codegen/base/text.h"
#include "collective/plans/planner.h"

namespace lathe {

// The JSON library calls these two wherever a case or an answer has a shard.
static void from_json(const Json& value, DocumentShard& shard) {
  const std::vector<int64_t> three = integers_of(value, "a number of shards", 0, INT_MAX);
  if (three.size() != 3) {
    throw Refused(text("a shard is ", shown(value), "; allowed is [document, start, length]"));
  }
  shard = {three[0], three[1], three[2]};
}
static void to_json(Json& value, const DocumentShard& shard) {
  value = {shard.document, shard.start, shard.length};
}

namespace kinds {
namespace {

// Returns the rows of `name`, a list of lists.
const Json& rows_of(const PlanCase& input, const char* name) {
  const Json& table = input.at(name);
  bool good = table.is_array();
  for (const Json& row : table) good = good && row.is_array();
  if (!good) throw Refused(text(name, " is ", shown(table), "; allowed is a list for each rank"));
  return table;
}

Table table_of(const PlanCase& input, const char* name, int64_t low, int64_t high) {
  Table out;
  for (const Json& row : rows_of(input, name)) out.push_back(integers_of(row, name, low, high));
  return out;
}

// True if entries are lists of copies rather than destinations.
bool has_copies(const Json& rows) {
  for (const Json& rank : rows) {
    for (const Json& shard : rank) return shard.is_array();
  }
  return false;
}

// Refuses `rows` unless they name a rank, or kNowhere, for each shard.
void check_targets(const char* name, const Json& rows, const Table& seq_len, bool copies) {
  const auto world = static_cast<int64_t>(seq_len.size());
  const auto require_alike = [&](const std::string& of, size_t found, size_t wanted) {
    if (found == wanted) return;
    throw Refused(text(name, of, " has ", found, " entries; allowed are ", wanted));
  };
  accepted(check_world(world));
  require_alike("", rows.size(), seq_len.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    require_alike(text("[", i, "]"), rows[i].size(), seq_len[i].size());
    for (const Json& shard : rows[i]) {
      integers_of(copies ? shard : Json::array({shard}), name, kNowhere, world - 1);
    }
    const int64_t tokens = std::accumulate(seq_len[i].begin(), seq_len[i].end(), int64_t{0});
    if (tokens <= INT_MAX) continue;
    throw Refused(text("seq_len[", i, "] has ", tokens, " tokens; allowed are 0 to ", INT_MAX));
  }
}

DocumentShards shards_of(const PlanCase& input) {
  return rows_of(input, "shards").get<DocumentShards>();
}

// Returns the exchange of queries, as it is executed. Tables have a column for the longest rank.
Exchange queries_of(Table seq_len, Table dst, size_t most,
                    const std::vector<SharedContext>& contexts) {
  Exchange out;
  for (size_t i = 0; i < seq_len.size(); ++i) {
    auto& lengths = seq_len[i];
    out.num_seqs.push_back(0);
    for (size_t j = 0; j < lengths.size(); ++j) {
      if (lengths[j] > 0 || dst[i][j] >= 0) out.num_seqs[i] = static_cast<int64_t>(j) + 1;
      if (lengths[j] == 0 || dst[i][j] >= 0) continue;
      throw Refused(text("dst[", i, "][", j, "] is -1, but the shard has ", lengths[j],
                         " tokens; allowed are 0 to ", dst.size() - 1));
    }
    lengths.resize(most), dst[i].resize(most, kNowhere);
  }
  out.seq_len = std::move(seq_len), out.targets = dst;
  for (int64_t to = 0; to < std::ssize(contexts); ++to) {
    for (const auto& q : contexts[to].queries) {
      out.entries.push_back({q.rank, q.shard, 0, to, q.q_offset});
    }
  }
  return out;
}

// Returns an exchange of keys with a copy for each shard of queries that needs them. It expands the
// executed contexts for a kernel that wants each of them apart, in the order of their queries.
Exchange keys_of(const DocumentShards& shards, const DocumentChains& chains, Exchange out,
                 size_t copies, const std::vector<SharedContext>& contexts) {
  out.entries.clear();
  for (size_t i = 0; i < shards.size(); ++i) {
    out.num_seqs[i] = static_cast<int64_t>(shards[i].size());
    for (Json& shard : out.targets[i]) shard = Json(copies, Json(kNowhere));
  }
  for (int64_t to = 0; to < std::ssize(contexts); ++to) {
    int64_t base = 0;
    for (const auto& q : contexts[to].queries) {
      const DocumentShard& own = shards[q.rank][q.shard];
      const auto& chain = chains.at(own.document);
      const ChainLink link = {own.start, own.length, q.rank, q.shard};
      const auto last = std::lower_bound(chain.begin(), chain.end(), link);
      for (auto each = chain.begin(); each <= last; ++each) {
        out.entries.push_back({each->rank, each->shard, last - each, to, base + each->start});
        out.targets[each->rank][each->shard][last - each] = to;
      }
      base += own.start + own.length;
    }
  }
  return out;
}

// Returns the tables that follow from where documents lie.
Json inputs_of(const DocumentShards& shards, const DocumentChains& chains, const Exchange& queries,
               size_t most, size_t copies) {
  const auto table = [&](Json value) { return Json(shards.size(), Json(most, std::move(value))); };
  Json out = {{"kv_to_q_mapping", table(Json(copies, Json{kNowhere, kNowhere}))},
              {"kv_to_q_rank", table(Json(copies, Json(kNowhere)))},
              {"kv_context_size", table(0)},
              {"q_to_num_kv_seq", table(0)},
              {"q_to_num_kv_token", table(0)},
              {"seq_len", queries.seq_len},
              {"num_seqs", Json::array()},
              {"q_dispatch", queries.targets}};
  for (const auto& rank : shards) out["num_seqs"].push_back(rank.size());
  for (const auto& [document, chain] : chains) {
    for (size_t own = 0; own < chain.size(); ++own) {
      const ChainLink& link = chain[own];
      const auto at = [&](const char* name) -> Json& { return out[name][link.rank][link.shard]; };
      at("kv_context_size") = link.start;
      at("q_to_num_kv_seq") = own + 1;
      at("q_to_num_kv_token") = link.start + link.length;
      for (size_t c = 0; own + c < chain.size(); ++c) {
        at("kv_to_q_mapping")[c] = {chain[own + c].rank, chain[own + c].shard};
        at("kv_to_q_rank")[c] = own;
      }
    }
  }
  return out;
}

// Adds the executed contexts, and the offsets for a packed causal kernel that wants them apart.
void add_contexts(const std::vector<SharedContext>& contexts, Json* out) {
  // These become lists with the first element. There is a context for each rank, so none is empty.
  Json layout, shared;
  for (const SharedContext& context : contexts) {
    Json queries = Json::array(), keys = Json::array();
    std::vector<int64_t> cu_q = {0}, cu_k = {0};
    int64_t max_q = 0, max_k = 0;
    for (const auto& q : context.queries) {
      cu_q.push_back(cu_q.back() + q.q_length), cu_k.push_back(cu_k.back() + q.k_length);
      max_q = std::max(max_q, q.q_length), max_k = std::max(max_k, q.k_length);
      queries.push_back({{"src", {q.rank, q.shard}},
                         {"q_off", q.q_offset},
                         {"q_len", q.q_length},
                         {"k_off", q.k_offset},
                         {"k_len", q.k_length}});
    }
    for (const auto& k : context.keys) {
      keys.push_back({{"src", {k.rank, k.shard}}, {"off", k.offset}, {"len", k.length}});
    }
    layout["cu_seqlens_q"].push_back(cu_q), layout["cu_seqlens_kv"].push_back(cu_k);
    layout["max_q"].push_back(max_q), layout["max_kv"].push_back(max_k);
    layout["num_shards"].push_back(context.queries.size());
    shared.push_back({{"q", queries},
                      {"kv", keys},
                      {"q_tokens", context.q_tokens},
                      {"kv_tokens", context.kv_tokens}});
  }
  (*out)["attention_layout"] = std::move(layout);
  (*out)["dedup"] = std::move(shared);
}

}  // namespace

Json dispatch_query(const PlanCase& input) {
  Exchange exchange;
  exchange.seq_len = table_of(input, "seq_len", 0, INT_MAX);
  exchange.targets = rows_of(input, "dispatch");
  const bool lists = has_copies(exchange.targets);
  check_targets("dispatch", exchange.targets, exchange.seq_len, lists);
  std::vector<int64_t> fill(exchange.seq_len.size());
  size_t most = 0, copies = 0;
  for (int64_t i = 0; i < std::ssize(exchange.seq_len); ++i) {
    const std::vector<int64_t>& lengths = exchange.seq_len[i];
    int64_t& used = exchange.num_seqs.emplace_back(0);
    most = std::max(most, lengths.size());
    for (int64_t j = 0; j < std::ssize(lengths); ++j) {
      const Json& shard = exchange.targets[i][j];
      const auto targets = (lists ? shard : Json::array({shard})).get<std::vector<int64_t>>();
      if (lengths[j] > 0) used = j + 1;
      copies = std::max(copies, targets.size());
      for (int64_t c = 0; c < std::ssize(targets); ++c) {
        const int64_t to = targets[c];
        if (to < 0) continue;
        used = j + 1;
        exchange.entries.push_back({i, j, c, to, fill[to]});
        fill[to] += lengths[j];
      }
    }
  }
  list_entries(input, exchange.seq_len.size(), most, copies);
  return {{"forward", forward(exchange)}, {"reverse", reverse(exchange, lists)}};
}

Json dispatch_kv(const PlanCase& input) {
  const DocumentShards shards = shards_of(input);
  const Table dst = table_of(input, "dst", kNowhere, INT_MAX);
  Table lengths;
  size_t most = 0, copies = 0, entries = 0;
  for (const auto& rank : shards) {
    auto& row = lengths.emplace_back();
    for (const DocumentShard& shard : rank) row.push_back(shard.length);
    most = std::max(most, rank.size());
  }
  check_targets("dst", dst, lengths, false);
  const DocumentChains chains = accepted(document_chains(shards));
  for (const auto& [document, chain] : chains) {
    copies = std::max(copies, chain.size());
    entries += chain.size() * (chain.size() + 1) / 2;
  }
  list_entries(input, shards.size(), most, copies);
  input.list("keys", static_cast<int64_t>(entries), 2 * kEntry);
  const std::vector<SharedContext> contexts = shared_contexts(shards, dst, kCausal);
  const Exchange queries = queries_of(lengths, dst, most, contexts);
  const Exchange keys = keys_of(shards, chains, queries, copies, contexts);
  Json out = {{"inputs", inputs_of(shards, chains, queries, most, copies)},
              {"q_forward", forward(queries)},
              {"q_reverse", reverse(queries, false)},
              {"kv_forward", forward(keys)},
              {"kv_reverse", reverse(keys, true)}};
  add_contexts(contexts, &out);
  return out;
}

Json planner(const PlanCase& input) {
  const DocumentShards shards = shards_of(input);
  const int world = input.world();
  if (world != static_cast<int64_t>(shards.size())) {
    throw Refused(text("world_size is ", world, ", but shards are of ", shards.size(), " ranks"));
  }
  const std::vector<int64_t> eps = input.integers("eps", 0, INT_MAX);
  if (eps.size() != 2) {
    throw Refused(text("eps is ", shown(input.at("eps")), "; allowed is [n, d]"));
  }
  const PlannerLimits limits = {eps[0], eps[1], input.integer("align", 1, INT_MAX),
                                input.integer("q_bytes", 0, INT_MAX),
                                input.integer("kv_bytes", 0, INT_MAX)};
  const BalancedPlan plan = accepted(balance_shards(shards, limits));
  for (const auto& rank : plan.shards) {
    input.list("shards", static_cast<int64_t>(rank.size()), kEntry);
  }
  return {{"out_shards", plan.shards},
          {"dst", plan.dst},
          {"load", plan.load},
          {"load_before", plan.load_before}};
}

}  // namespace kinds
}  // namespace lathe
