// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Records of a dispatch: integers only.
#include "collective/dispatch.h"

#include <algorithm>
#include <climits>
#include <map>
#include <tuple>

#include "codegen/base/text.h"

namespace lathe {
namespace {

Status invalid(std::string what) { return {Code::invalid_argument, std::move(what)}; }

// A table has a row for every rank, as wide as the longest one: a few shards on one of many ranks
// make large ones.
Status check_table(const char* columns, int64_t ranks, int64_t width, int64_t copies = 1) {
  constexpr int64_t kMost = int64_t{1} << 22;
  if (width <= kMost / std::max<int64_t>(ranks, 1) / std::max<int64_t>(copies, 1)) return {};
  return invalid(text("a table of ", ranks, " ranks has ", width, " ", columns, " of ", copies,
                      " copies; allowed are ", kMost, " entries"));
}

// A shard as the reverse of a record names it, in the order of a rank's receive buffer.
struct Arrival {
  int64_t rank = kNowhere, offset = 0, length = 0;
};

// Offsets of shards in their rank's buffer, and the buffer's length at the end.
Table positions(const Table& seq_len) {
  Table out;
  for (const auto& lengths : seq_len) {
    out.push_back({0});
    for (const int64_t length : lengths) out.back().push_back(out.back().back() + length);
  }
  return out;
}

// Row i: what rank i receives, with the sum behind it.
Table with_sums(const Table& received) {
  Table out = received;
  for (auto& row : out) {
    int64_t sum = 0;
    for (const int64_t count : row) sum += count;
    row.push_back(sum);
  }
  return out;
}

std::vector<int64_t> last_column(const Table& table) {
  std::vector<int64_t> out;
  for (const auto& row : table) out.push_back(row.back());
  return out;
}

Table transposed(const Table& square) {
  Table out(square.size(), std::vector<int64_t>(square.size()));
  for (size_t i = 0; i < square.size(); ++i) {
    for (size_t j = 0; j < square.size(); ++j) out[j][i] = square[i][j];
  }
  return out;
}

// `sent`: [from][to]. Completes both directions.
void count_tokens(const Table& sent, Dispatch* out) {
  out->forward.num_recv_tokens = with_sums(transposed(sent));
  out->reverse.num_recv_tokens = with_sums(sent);
  for (DispatchRecord* record : {&out->forward, &out->reverse}) {
    record->num_total_recv_tokens = last_column(record->num_recv_tokens);
  }
}

Status name_arrivals(const std::vector<std::vector<Arrival>>& arrivals, DispatchRecord* reverse) {
  size_t longest = 0;
  for (const auto& list : arrivals) longest = std::max(longest, list.size());
  LATHE_TRY(check_table("arrivals", static_cast<int64_t>(arrivals.size()),
                        static_cast<int64_t>(longest)));
  for (auto list : arrivals) {
    reverse->num_seqs.push_back(static_cast<int64_t>(list.size()));
    list.resize(longest);
    auto& ranks = reverse->dst_rank.emplace_back();
    auto& offsets = reverse->dst_offset.emplace_back();
    auto& lengths = reverse->seq_len.emplace_back();
    for (const Arrival& arrival : list) {
      ranks.push_back({arrival.rank}), offsets.push_back({arrival.offset});
      lengths.push_back(arrival.length);
    }
  }
  return {};
}

Status check_dispatch(const Table& seq_len, const CopyTable& dispatch) {
  const auto world = static_cast<int64_t>(seq_len.size());
  LATHE_TRY(check_world(world));
  LATHE_TRY(check_table("ranks", world, world));
  if (dispatch.size() != seq_len.size()) {
    return invalid(text("dispatch has ", dispatch.size(), " ranks, seq_len ", world));
  }
  for (size_t i = 0; i < seq_len.size(); ++i) {
    if (dispatch[i].size() != seq_len[i].size()) {
      return invalid(text("dispatch[", i, "] has ", dispatch[i].size(), " shards, seq_len[", i,
                          "] ", seq_len[i].size()));
    }
    int64_t tokens = 0;  // of the rank's buffer
    for (size_t j = 0; j < seq_len[i].size(); ++j) {
      const int64_t length = seq_len[i][j];
      if (length < 0 || length > INT_MAX) {
        return invalid(
            text("seq_len[", i, "][", j, "] is ", length, "; allowed are 0 to ", INT_MAX));
      }
      tokens += length;
      if (tokens > INT_MAX) {
        return invalid(
            text("seq_len[", i, "] has ", tokens, " tokens; allowed are 0 to ", INT_MAX));
      }
      for (const int64_t to : dispatch[i][j]) {
        if (to >= kNowhere && to < world) continue;
        return invalid(
            text("dispatch[", i, "][", j, "] is ", to, "; allowed are -1 to ", world - 1));
      }
    }
  }
  return {};
}

// 1 + the last shard that has tokens or a destination.
std::vector<int64_t> count_shards(const Table& seq_len, const CopyTable& dispatch) {
  std::vector<int64_t> counts;
  for (size_t i = 0; i < seq_len.size(); ++i) {
    counts.push_back(0);
    for (size_t j = 0; j < seq_len[i].size(); ++j) {
      const auto& to = dispatch[i][j];
      const bool used = std::any_of(to.begin(), to.end(), [](int64_t d) { return d >= 0; });
      if (used || seq_len[i][j] > 0) counts.back() = static_cast<int64_t>(j) + 1;
    }
  }
  return counts;
}

CopyTable like(const CopyTable& table, int64_t value) {
  CopyTable out = table;
  for (auto& rank : out) {
    for (auto& shard : rank) std::fill(shard.begin(), shard.end(), value);
  }
  return out;
}

}  // namespace

Result<Dispatch> dispatch_query(const Table& seq_len, const CopyTable& dispatch) {
  LATHE_TRY(check_dispatch(seq_len, dispatch));
  const size_t world = seq_len.size();
  Dispatch out;
  out.forward.dst_rank = dispatch;
  out.forward.dst_offset = like(dispatch, 0);
  out.forward.seq_len = seq_len;
  out.forward.num_seqs = count_shards(seq_len, dispatch);
  const Table position = positions(seq_len);
  Table sent(world, std::vector<int64_t>(world));
  std::vector<int64_t> fill(world);
  std::vector<std::vector<Arrival>> arrivals(world);
  for (size_t i = 0; i < world; ++i) {
    for (size_t j = 0; j < seq_len[i].size(); ++j) {
      for (size_t c = 0; c < dispatch[i][j].size(); ++c) {
        const int64_t to = dispatch[i][j][c], length = seq_len[i][j];
        if (to < 0) continue;
        out.forward.dst_offset[i][j][c] = fill[to];
        fill[to] += length;
        sent[i][to] += length;
        const int64_t home = static_cast<int64_t>(c) * position[i].back() + position[i][j];
        arrivals[to].push_back({static_cast<int64_t>(i), home, length});
      }
    }
  }
  LATHE_TRY(name_arrivals(arrivals, &out.reverse));
  count_tokens(sent, &out);
  return out;
}

namespace {

// A shard in the chain of its document.
struct Link {
  int64_t start, length, rank, shard;
  bool operator<(const Link& other) const {
    return std::tie(start, length, rank, shard) <
           std::tie(other.start, other.length, other.rank, other.shard);
  }
};
using Chains = std::map<int64_t, std::vector<Link>>;

// Each shard begins where those before it end, and goes somewhere if it has tokens.
Status check_chain(int64_t document, const std::vector<Link>& chain, const Table& dst) {
  int64_t next = 0;
  for (const Link& link : chain) {
    if (link.start != next) {
      return invalid(text("shards[", link.rank, "][", link.shard, "] of document ", document,
                          " starts at ", link.start, "; the shards before it end at ", next));
    }
    next += link.length;
    if (next > INT_MAX) {
      return invalid(
          text("document ", document, " has ", next, " tokens; allowed are 0 to ", INT_MAX));
    }
    if (link.length > 0 && dst[link.rank][link.shard] < 0) {
      return invalid(text("dst[", link.rank, "][", link.shard, "] is -1, but the shard has ",
                          link.length, " tokens; allowed are 0 to ", dst.size() - 1));
    }
  }
  return {};
}

// The shards of each document by their start, checked.
Result<Chains> chains_of(const DocumentShards& shards, const Table& dst) {
  const size_t world = shards.size();
  LATHE_TRY(check_world(static_cast<int64_t>(world)));
  if (dst.size() != world) return invalid(text("dst has ", dst.size(), " ranks, shards ", world));
  Table lengths;
  CopyTable targets;
  Chains chains;
  for (size_t i = 0; i < world; ++i) {
    auto& row = lengths.emplace_back();
    auto& to = targets.emplace_back();
    for (size_t j = 0; j < shards[i].size(); ++j) {
      const DocumentShard& shard = shards[i][j];
      row.push_back(shard.length);
      chains[shard.document].push_back(
          {shard.start, shard.length, static_cast<int64_t>(i), static_cast<int64_t>(j)});
    }
    for (const int64_t d : dst[i]) to.push_back({d});
  }
  LATHE_TRY(check_dispatch(lengths, targets));
  for (auto& [document, chain] : chains) {
    std::sort(chain.begin(), chain.end());
    LATHE_TRY(check_chain(document, chain, dst));
  }
  return chains;
}

}  // namespace

Status check_documents(const DocumentShards& shards, const Table& dst) {
  return chains_of(shards, dst).status();
}

Result<DocumentTables> document_tables(const DocumentShards& shards, const Table& dst) {
  LATHE_ASSIGN(const Chains chains, chains_of(shards, dst));
  const size_t world = shards.size();
  size_t most = 0;
  DocumentTables out;
  for (const auto& rank : shards) most = std::max(most, rank.size());
  for (const auto& [document, chain] : chains) {
    out.copies = std::max(out.copies, static_cast<int64_t>(chain.size()));
  }
  LATHE_TRY(
      check_table("shards", static_cast<int64_t>(world), static_cast<int64_t>(most), out.copies));
  const auto table = [&](int64_t value) { return Table(world, std::vector<int64_t>(most, value)); };
  out.seq_len = table(0), out.q_dispatch = table(kNowhere), out.kv_context_size = table(0);
  out.q_to_num_kv_token = table(0), out.q_to_num_kv_seq = table(0), out.chain = table(kNowhere);
  for (const auto& [document, chain] : chains) {
    int64_t place = 0;
    for (const Link& link : chain) {
      const auto [i, j] = std::pair(link.rank, link.shard);
      out.seq_len[i][j] = link.length, out.q_dispatch[i][j] = dst[i][j];
      out.kv_context_size[i][j] = link.start;
      out.q_to_num_kv_token[i][j] = link.start + link.length;
      out.chain[i][j] = place++, out.q_to_num_kv_seq[i][j] = place;
    }
  }
  const std::vector<int64_t> nobody(out.copies, kNowhere);
  out.user_rank = out.user_shard = CopyTable(world, Table(most, nobody));
  for (const auto& [document, chain] : chains) {
    for (size_t own = 0; own < chain.size(); ++own) {
      for (size_t c = 0; own + c < chain.size(); ++c) {
        out.user_rank[chain[own].rank][chain[own].shard][c] = chain[own + c].rank;
        out.user_shard[chain[own].rank][chain[own].shard][c] = chain[own + c].shard;
      }
    }
  }
  for (const auto& rank : shards) out.num_seqs.push_back(static_cast<int64_t>(rank.size()));
  return out;
}

Result<Dispatch> dispatch_kv(const DocumentTables& tables) {
  const size_t world = tables.seq_len.size();
  Dispatch out;
  out.forward.dst_rank = like(tables.user_rank, kNowhere);
  out.forward.dst_offset = like(tables.user_rank, 0);
  out.forward.seq_len = tables.seq_len;
  out.forward.num_seqs = tables.num_seqs;
  // Where the context of each query shard begins, in tokens and in shards.
  Table token_base = tables.seq_len, shard_base = tables.seq_len;
  std::vector<int64_t> tokens(world), seqs(world);
  for (size_t i = 0; i < world; ++i) {
    for (size_t j = 0; j < tables.seq_len[i].size(); ++j) {
      const int64_t to = tables.q_dispatch[i][j];
      if (to < 0) continue;
      token_base[i][j] = tokens[to], shard_base[i][j] = seqs[to];
      tokens[to] += tables.q_to_num_kv_token[i][j], seqs[to] += tables.q_to_num_kv_seq[i][j];
    }
  }
  const Table position = positions(tables.seq_len);
  Table sent(world, std::vector<int64_t>(world));
  std::vector<std::vector<Arrival>> arrivals(world);
  for (size_t d = 0; d < world; ++d) arrivals[d].resize(seqs[d]);
  for (size_t i = 0; i < world; ++i) {
    for (size_t j = 0; j < tables.seq_len[i].size(); ++j) {
      for (int64_t c = 0; c < tables.copies; ++c) {
        const int64_t rank = tables.user_rank[i][j][c], shard = tables.user_shard[i][j][c];
        const int64_t to = rank < 0 ? kNowhere : tables.q_dispatch[rank][shard];
        if (to < 0) continue;
        const int64_t length = tables.seq_len[i][j];
        out.forward.dst_rank[i][j][c] = to;
        out.forward.dst_offset[i][j][c] = token_base[rank][shard] + tables.kv_context_size[i][j];
        sent[i][to] += length;
        arrivals[to][shard_base[rank][shard] + tables.chain[i][j]] = {
            static_cast<int64_t>(i), c * position[i].back() + position[i][j], length};
      }
    }
  }
  LATHE_TRY(name_arrivals(arrivals, &out.reverse));
  count_tokens(sent, &out);
  return out;
}

AttentionLayout attention_layout(const Table& seq_len, const Table& context,
                                 const Table& dispatch) {
  const size_t world = seq_len.size();
  AttentionLayout out;
  out.cu_seqlens_q = out.cu_seqlens_kv = Table(world, {0});
  out.max_q = out.max_kv = out.num_shards = std::vector<int64_t>(world);
  for (size_t i = 0; i < world; ++i) {
    for (size_t j = 0; j < seq_len[i].size(); ++j) {
      const int64_t to = dispatch[i][j];
      if (to < 0) continue;
      out.cu_seqlens_q[to].push_back(out.cu_seqlens_q[to].back() + seq_len[i][j]);
      out.cu_seqlens_kv[to].push_back(out.cu_seqlens_kv[to].back() + context[i][j]);
      out.max_q[to] = std::max(out.max_q[to], seq_len[i][j]);
      out.max_kv[to] = std::max(out.max_kv[to], context[i][j]);
      ++out.num_shards[to];
    }
  }
  return out;
}

std::map<int64_t, int64_t> document_lengths(const DocumentShards& shards) {
  std::map<int64_t, int64_t> out;
  for (const auto& rank : shards) {
    for (const DocumentShard& shard : rank) {
      int64_t& length = out[shard.document];
      length = std::max(length, shard.start + shard.length);
    }
  }
  return out;
}

namespace {

// Of one destination.
SharedContext shared_context(const DocumentShards& shards, const Table& dst, int64_t at,
                             const Sight& sight, std::map<int64_t, int64_t>& lengths) {
  const auto each = [&](const auto& body) {
    for (size_t i = 0; i < shards.size(); ++i) {
      for (size_t j = 0; j < shards[i].size(); ++j) body(i, j, shards[i][j]);
    }
  };
  const auto seen = [&](const DocumentShard& shard) {
    return sight.keys({shard.start, shard.start + shard.length}, lengths[shard.document]);
  };
  SharedContext out;
  struct Need {
    Interval keys;
    int64_t base = 0;
  };
  std::map<int64_t, Need> needs;
  std::vector<int64_t> documents;  // in the order of their first query
  each([&](size_t i, size_t j, const DocumentShard& shard) {
    if (dst[i][j] != at) return;
    const Interval keys = seen(shard);
    const auto [found, added] = needs.try_emplace(shard.document, Need{keys, 0});
    if (added) documents.push_back(shard.document);
    Interval& all = found->second.keys;
    all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
  });
  for (const int64_t document : documents) {
    needs[document].base = out.kv_tokens;
    out.kv_tokens += needs[document].keys.size();
  }
  each([&](size_t i, size_t j, const DocumentShard& shard) {
    const auto rank = static_cast<int64_t>(i), number = static_cast<int64_t>(j);
    const auto found = needs.find(shard.document);
    if (found != needs.end()) {
      const auto& [keys, base] = found->second;
      const int64_t begin = std::max(shard.start, keys.begin);
      const int64_t end = std::min(shard.start + shard.length, keys.end);
      const bool inside = keys.begin <= shard.start && shard.start < keys.end;
      if (begin < end || (shard.length == 0 && inside)) {
        out.keys.push_back(
            {rank, number, begin - shard.start, base + begin - keys.begin, end - begin});
      }
    }
    if (dst[i][j] != at) return;
    const Interval keys = seen(shard);
    const Need& need = found->second;
    out.queries.push_back({rank, number, out.q_tokens, shard.length,
                           need.base + keys.begin - need.keys.begin, keys.size(), keys.begin});
    out.q_tokens += shard.length;
  });
  std::stable_sort(out.keys.begin(), out.keys.end(),
                   [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return out;
}

}  // namespace

std::vector<SharedContext> shared_contexts(const DocumentShards& shards, const Table& dst,
                                           const Sight& sight) {
  std::map<int64_t, int64_t> lengths = document_lengths(shards);
  std::vector<SharedContext> out;
  for (size_t d = 0; d < shards.size(); ++d) {
    out.push_back(shared_context(shards, dst, static_cast<int64_t>(d), sight, lengths));
  }
  return out;
}

}  // namespace lathe
