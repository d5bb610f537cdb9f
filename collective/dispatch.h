// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Moving shards of queries and keys to where their attention is computed: who sends what where, in
// tokens. Shard (i, j) is the j-th run of tokens in rank i's buffer; entries are taken in the order
// of (rank, shard, copy), and that order is also the order of arrival. (The records are those of
// Zhuang et al., DistCA: Core Attention Disaggregation, 2025.) Pure.
#pragma once

#include <map>

#include "collective/sight.h"

namespace lathe {

using Table = std::vector<std::vector<int64_t>>;                   // [rank][shard]
using CopyTable = std::vector<std::vector<std::vector<int64_t>>>;  // [rank][shard][copy]

constexpr int64_t kNowhere = -1;

// One direction of an exchange. Tables have a column for the longest rank; what is not there has
// destination kNowhere, offset and length 0.
struct DispatchRecord {
  CopyTable dst_rank;    // where each entry goes; queries have one copy
  CopyTable dst_offset;  // and to which token of the buffer there
  Table seq_len;
  Table num_recv_tokens;          // [i][j]: that i receives from j; the last column is their sum
  std::vector<int64_t> num_seqs;  // up to the last shard with tokens or a destination
  std::vector<int64_t> num_total_recv_tokens;
};
struct Dispatch {
  DispatchRecord forward, reverse;
};
// `dispatch`: [rank][shard][copy], kNowhere for none. The reverse moves results home: its entry k
// on rank d is the k-th shard of d's receive buffer.
Result<Dispatch> dispatch_query(const Table& seq_len, const CopyTable& dispatch);

// A run of a document's tokens.
struct DocumentShard {
  int64_t document = 0, start = 0, length = 0;
};
using DocumentShards = std::vector<std::vector<DocumentShard>>;  // [rank][shard]

// What follows from where documents lie. Shards of a document, by their start, are its chain: a
// query shard needs the keys of its chain up to its own, so keys serve up to `copies` of them.
struct DocumentTables {
  int64_t copies = 0;
  Table seq_len, q_dispatch;
  Table kv_context_size;    // tokens of the document before the shard
  Table q_to_num_kv_token;  // of the causal context of its queries, its own with them
  Table q_to_num_kv_seq;
  Table chain;                      // place in the chain
  CopyTable user_rank, user_shard;  // the c-th user of the shard's keys, itself the first
  std::vector<int64_t> num_seqs;
};
Result<DocumentTables> document_tables(const DocumentShards& shards, const Table& dst);
// Only what that refuses: documents with gaps, or whose shards go nowhere.
Status check_documents(const DocumentShards& shards, const Table& dst);

// Keys and values, a copy for every query shard that needs them: each finds its context whole.
Result<Dispatch> dispatch_kv(const DocumentTables& tables);

// What a packed causal kernel is given at each destination, shards in the order of arrival.
struct AttentionLayout {
  Table cu_seqlens_q, cu_seqlens_kv;
  std::vector<int64_t> max_q, max_kv, num_shards;
};
AttentionLayout attention_layout(const Table& seq_len, const Table& context, const Table& dispatch);

// The same with every key sent once to a destination, which is what is executed: contexts of one
// document share keys. Each document has there the keys from the first to the last that one of its
// rows there sees.
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
std::vector<SharedContext> shared_contexts(const DocumentShards& shards, const Table& dst,
                                           const Sight& sight = {});

// Tokens of each document: where its last shard ends.
std::map<int64_t, int64_t> document_lengths(const DocumentShards& shards);

}  // namespace lathe
