// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention of documents may be computed elsewhere than they live. These functions say, in tokens,
// what each destination receives. Shard (i, j) is the j-th run of tokens in rank i's buffer; shards
// are taken in the order of (rank, shard), and queries arrive in that order. (After Zhuang et al.,
// DistCA: Core Attention Disaggregation, 2025.) Pure.
#pragma once

#include <map>

#include "collective/plans/visible_range.h"

namespace lathe {

using Table = std::vector<std::vector<int64_t>>;  // [rank][shard]

constexpr int64_t kNowhere = -1;

// A shard is a run of a document's tokens.
struct DocumentShard {
  int64_t document = 0, start = 0, length = 0;
};
using DocumentShards = std::vector<std::vector<DocumentShard>>;  // [rank][shard]

// The shards of a document by their start are its chain. This is one of them.
struct ChainLink {
  int64_t start = 0, length = 0, rank = 0, shard = 0;
  auto operator<=>(const ChainLink&) const = default;
};
using DocumentChains = std::map<int64_t, std::vector<ChainLink>>;
// Returns INVALID_ARGUMENT for documents with gaps or overlaps, and for more than INT_MAX tokens of
// a document or of a rank.
Result<DocumentChains> document_chains(const DocumentShards& shards);

// Describes the work of one destination. Every key is there once, although the contexts of one
// document's queries share keys: each document has the keys from the first to the last that one of
// its rows there sees.
struct SharedContext {
  struct Query {
    int64_t rank = 0, shard = 0;
    int64_t q_offset = 0, q_length = 0;
    int64_t k_offset = 0, k_length = 0;  // the keys that one of the rows sees
    int64_t k_start = 0;                 // in the document
  };
  struct Keys {  // keys [skip, skip + length) of a shard
    int64_t rank = 0, shard = 0, skip = 0, offset = 0, length = 0;
  };
  std::vector<Query> queries;
  std::vector<Keys> keys;
  int64_t q_tokens = 0, kv_tokens = 0;
};
// Returns the contexts by destination. `dst` names the rank that computes the queries of each
// shard; kNowhere: none does.
std::vector<SharedContext> shared_contexts(const DocumentShards& shards, const Table& dst,
                                           const VisibleRange& visible);

// Returns the tokens of each document: its length is where its last shard ends.
std::map<int64_t, int64_t> document_lengths(const DocumentShards& shards);

}  // namespace lathe
