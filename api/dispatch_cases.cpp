// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cases about shards that are computed elsewhere than they live.
#include "api/shard_cases.h"
#include "codegen/base/text.h"
#include "collective/planner.h"

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

CopyTable copies_of(const Json& table, bool copies) {
  if (copies) return table.get<CopyTable>();
  CopyTable out;
  for (const auto& rank : table.get<Table>()) {
    auto& row = out.emplace_back();
    for (const int64_t to : rank) row.push_back({to});
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

DocumentShards shards_of(const Json& table) {
  DocumentShards out;
  for (const Json& rank : table) {
    auto& row = out.emplace_back();
    for (const Json& shard : rank) {
      row.push_back(
          {shard.at(0).get<int64_t>(), shard.at(1).get<int64_t>(), shard.at(2).get<int64_t>()});
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

Json dispatch_queries(const Json& input) {
  const bool copies = has_copies(input.at("dispatch"));
  const Dispatch dispatch = accepted(
      dispatch_query(input.at("seq_len").get<Table>(), copies_of(input.at("dispatch"), copies)));
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

Json dispatch_documents(const Json& input) {
  const DocumentShards shards = shards_of(input.at("shards"));
  const Table dst = input.at("dst").get<Table>();
  const DocumentTables tables = accepted(document_tables(shards, dst));
  CopyTable targets;
  for (const auto& rank : tables.q_dispatch) {
    auto& row = targets.emplace_back();
    for (const int64_t to : rank) row.push_back({to});
  }
  const Dispatch queries = accepted(dispatch_query(tables.seq_len, targets));
  const Dispatch keys = dispatch_kv(tables);
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
          {"dedup", words(shared_contexts(shards, dst))}};
}

Json plan_shards(const Json& input) {
  const DocumentShards shards = shards_of(input.at("shards"));
  const auto world = input.at("world_size").get<int64_t>();
  if (world != static_cast<int64_t>(shards.size())) {
    throw Refused(text("world_size is ", world, ", but shards are of ", shards.size(), " ranks"));
  }
  const auto eps = input.at("eps").get<std::vector<int64_t>>();
  if (eps.size() != 2) throw Refused(text("eps is ", input.at("eps").dump(), ", must be [n, d]"));
  const PlannerLimits limits = {eps[0], eps[1], input.at("align").get<int64_t>(),
                                input.at("q_bytes").get<int64_t>(),
                                input.at("kv_bytes").get<int64_t>()};
  const BalancedPlan plan = accepted(balance_shards(shards, limits));
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
