// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the chains of documents and the contexts of destinations, from integers only.
#include "collective/plans/dispatch.h"

#include <algorithm>
#include <climits>

#include "codegen/base/invalid.h"

namespace lathe {
namespace {

// Adds the shards of a rank to the chains of their documents.
Status add_rank(const std::vector<DocumentShard>& shards, int64_t rank, DocumentChains* chains) {
  int64_t tokens = 0;
  for (size_t j = 0; j < shards.size(); ++j) {
    const DocumentShard& shard = shards[j];
    if (shard.length < 0 || shard.length > INT_MAX) {
      return invalid(text("shards[", rank, "][", j, "] has ", shard.length,
                          " tokens; allowed are 0 to ", INT_MAX));
    }
    tokens += shard.length;
    if (tokens > INT_MAX) {
      return invalid(
          text("shards[", rank, "] have ", tokens, " tokens; allowed are 0 to ", INT_MAX));
    }
    (*chains)[shard.document].push_back({shard.start, shard.length, rank, static_cast<int64_t>(j)});
  }
  return {};
}

// Each shard begins where those before it end.
Status check_chain(int64_t document, const std::vector<ChainLink>& chain) {
  int64_t next = 0;
  for (const ChainLink& link : chain) {
    if (link.start != next) {
      return invalid(text("shards[", link.rank, "][", link.shard, "] of document ", document,
                          " starts at ", link.start, "; the shards before it end at ", next));
    }
    next += link.length;
    if (next > INT_MAX) {
      return invalid(
          text("document ", document, " has ", next, " tokens; allowed are 0 to ", INT_MAX));
    }
  }
  return {};
}

// Returns the context of destination `at`.
SharedContext shared_context(const DocumentShards& shards, const Table& dst, int64_t at,
                             const VisibleRange& visible, std::map<int64_t, int64_t>& lengths) {
  const auto each = [&](const auto& body) {
    for (size_t i = 0; i < shards.size(); ++i) {
      for (size_t j = 0; j < shards[i].size(); ++j) body(i, j, shards[i][j]);
    }
  };
  const auto seen = [&](const DocumentShard& shard) {
    return visible.keys({shard.start, shard.start + shard.length}, lengths[shard.document]);
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

Result<DocumentChains> document_chains(const DocumentShards& shards) {
  const auto world = static_cast<int64_t>(shards.size());
  LATHE_TRY(check_world(world));
  DocumentChains chains;
  for (int64_t rank = 0; rank < world; ++rank) LATHE_TRY(add_rank(shards[rank], rank, &chains));
  for (auto& [document, chain] : chains) {
    std::sort(chain.begin(), chain.end());
    LATHE_TRY(check_chain(document, chain));
  }
  return chains;
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

std::vector<SharedContext> shared_contexts(const DocumentShards& shards, const Table& dst,
                                           const VisibleRange& visible) {
  std::map<int64_t, int64_t> lengths = document_lengths(shards);
  std::vector<SharedContext> out;
  for (size_t d = 0; d < shards.size(); ++d) {
    out.push_back(shared_context(shards, dst, static_cast<int64_t>(d), visible, lengths));
  }
  return out;
}

}  // namespace lathe
