// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cases about shards that are computed elsewhere than they live.
#include "api/shard_cases.h"
#include "codegen/base/text.h"
#include "collective/planner.h"
#include "collective/world.h"

namespace lathe {
namespace {

// Tables of queries have one copy, which JSON leaves out.
Json without_copies(const CopyTable& table) {
  Json out = Json::array();
  for (const auto& rank : table) {
    Json row = Json::array();
    for (const auto& shard : rank) row.push_back(shard.at(0));
    out.push_back(row);
  }
  return out;
}

Json words(const DispatchRecord& record, bool copies) {
  return {{"dst_rank", copies ? Json(record.dst_rank) : without_copies(record.dst_rank)},
          {"dst_offset", copies ? Json(record.dst_offset) : without_copies(record.dst_offset)},
          {"seq_len", record.seq_len},
          {"num_recv_tokens", record.num_recv_tokens},
          {"num_seqs", record.num_seqs},
          {"num_total_recv_tokens", record.num_total_recv_tokens}};
}
// What gradients of copies need to know besides: which of them come, of shards how long.
Json words_of_reverse(const Dispatch& dispatch, bool copies) {
  Json out = words(dispatch.reverse, false);
  if (!copies) return out;
  CopyTable mask = dispatch.forward.dst_rank;
  for (auto& rank : mask) {
    for (auto& shard : rank) {
      for (int64_t& to : shard) to = to >= 0 ? 1 : 0;
    }
  }
  out["seq_recv_mask"] = mask;
  out["recv_seq_lens"] = dispatch.forward.seq_len;
  return out;
}

// Numbers of JSON that an entry of a table takes, in all the tables of an answer that have it.
constexpr int64_t kEntry = 16;

// The rows of `name`, a list of lists.
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

// Destinations, or where `copies` is set lists of them.
CopyTable copies_of(const PlanCase& input, const char* name, bool copies) {
  CopyTable out;
  for (const Json& row : rows_of(input, name)) {
    auto& to = out.emplace_back();
    for (const Json& shard : row) {
      to.push_back(copies ? integers_of(shard, name, kNowhere, kMostWorld)
                          : std::vector{integer_of(shard, name, kNowhere, kMostWorld)});
    }
  }
  return out;
}

// Whether entries are lists of copies rather than destinations.
bool has_copies(const Json& table) {
  for (const Json& rank : table) {
    for (const Json& shard : rank) return shard.is_array();
  }
  return false;
}

DocumentShards shards_of(const PlanCase& input) {
  DocumentShards out;
  for (const Json& rank : rows_of(input, "shards")) {
    auto& row = out.emplace_back();
    for (const Json& shard : rank) {
      const std::vector<int64_t> three = integers_of(shard, "a number of shards", 0, INT_MAX);
      if (three.size() != 3) {
        throw Refused(text("a shard is ", shown(shard), "; allowed is [document, start, length]"));
      }
      row.push_back({three[0], three[1], three[2]});
    }
  }
  return out;
}
Json words(const DocumentShards& shards) {
  Json out = Json::array();
  for (const auto& rank : shards) {
    Json row = Json::array();
    for (const DocumentShard& shard : rank) {
      row.push_back({shard.document, shard.start, shard.length});
    }
    out.push_back(row);
  }
  return out;
}

int64_t entries_of(const DispatchRecord& record) {
  int64_t out = 0;
  for (const auto& rank : record.dst_rank) {
    for (const auto& shard : rank) out += static_cast<int64_t>(shard.size()) + 1;
  }
  return out;
}
void list_entries(const PlanCase& input, const Dispatch& dispatch) {
  const auto world = static_cast<int64_t>(dispatch.forward.num_recv_tokens.size());
  input.list("entries", entries_of(dispatch.forward) + entries_of(dispatch.reverse), kEntry);
  input.list("pairs of ranks", world * world, 2);
}

Json dispatch_queries(const PlanCase& input) {
  const bool copies = has_copies(input.at("dispatch"));
  const Dispatch dispatch = accepted(
      dispatch_query(table_of(input, "seq_len", 0, INT_MAX), copies_of(input, "dispatch", copies)));
  list_entries(input, dispatch);
  return {{"forward", words(dispatch.forward, copies)},
          {"reverse", words_of_reverse(dispatch, copies)}};
}

Json words(const DocumentTables& tables) {
  Json users = Json::array(), ranks = Json::array();
  for (size_t i = 0; i < tables.seq_len.size(); ++i) {
    Json user_row = Json::array(), rank_row = Json::array();
    for (size_t j = 0; j < tables.seq_len[i].size(); ++j) {
      Json pairs = Json::array(), places = Json::array();
      for (int64_t c = 0; c < tables.copies; ++c) {
        const int64_t rank = tables.user_rank[i][j][c];
        pairs.push_back({rank, tables.user_shard[i][j][c]});
        places.push_back(rank < 0 ? kNowhere : tables.chain[i][j]);
      }
      user_row.push_back(pairs), rank_row.push_back(places);
    }
    users.push_back(user_row), ranks.push_back(rank_row);
  }
  return {{"kv_to_q_mapping", users},
          {"kv_to_q_rank", ranks},
          {"kv_context_size", tables.kv_context_size},
          {"q_to_num_kv_seq", tables.q_to_num_kv_seq},
          {"q_to_num_kv_token", tables.q_to_num_kv_token},
          {"seq_len", tables.seq_len},
          {"num_seqs", tables.num_seqs},
          {"q_dispatch", tables.q_dispatch}};
}

Json words(const std::vector<SharedContext>& contexts) {
  Json out = Json::array();
  for (const SharedContext& context : contexts) {
    Json queries = Json::array(), keys = Json::array();
    for (const auto& q : context.queries) {
      queries.push_back({{"src", {q.rank, q.shard}},
                         {"q_off", q.q_offset},
                         {"q_len", q.q_length},
                         {"k_off", q.k_offset},
                         {"k_len", q.k_length}});
    }
    for (const auto& k : context.keys) {
      keys.push_back({{"src", {k.rank, k.shard}}, {"off", k.offset}, {"len", k.length}});
    }
    out.push_back({{"q", queries},
                   {"kv", keys},
                   {"q_tokens", context.q_tokens},
                   {"kv_tokens", context.kv_tokens}});
  }
  return out;
}

Json dispatch_documents(const PlanCase& input) {
  const DocumentShards shards = shards_of(input);
  const Table dst = table_of(input, "dst", kNowhere, kMostWorld);
  const DocumentTables tables = accepted(document_tables(shards, dst));
  CopyTable targets;
  for (const auto& rank : tables.q_dispatch) {
    auto& row = targets.emplace_back();
    for (const int64_t to : rank) row.push_back({to});
  }
  const Dispatch queries = accepted(dispatch_query(tables.seq_len, targets));
  const Dispatch keys = accepted(dispatch_kv(tables));
  list_entries(input, queries);
  list_entries(input, keys);
  const std::vector<SharedContext> contexts = shared_contexts(shards, dst);
  for (const SharedContext& each : contexts) {
    input.list("shared shards", static_cast<int64_t>(each.queries.size() + each.keys.size()),
               2 * kEntry);
  }
  const AttentionLayout layout =
      attention_layout(tables.seq_len, tables.q_to_num_kv_token, tables.q_dispatch);
  return {{"inputs", words(tables)},
          {"q_forward", words(queries.forward, false)},
          {"q_reverse", words_of_reverse(queries, false)},
          {"kv_forward", words(keys.forward, true)},
          {"kv_reverse", words_of_reverse(keys, true)},
          {"attention_layout",
           {{"cu_seqlens_q", layout.cu_seqlens_q},
            {"cu_seqlens_kv", layout.cu_seqlens_kv},
            {"max_q", layout.max_q},
            {"max_kv", layout.max_kv},
            {"num_shards", layout.num_shards}}},
          {"dedup", words(contexts)}};
}

Json plan_shards(const PlanCase& input) {
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
  return {{"out_shards", words(plan.shards)},
          {"dst", plan.dst},
          {"load", plan.load},
          {"load_before", plan.load_before}};
}

}  // namespace

const ShardKind kDispatchKinds[3] = {
    {"dispatch_query", dispatch_queries},
    {"dispatch_kv", dispatch_documents},
    {"planner", plan_shards},
};

}  // namespace lathe
