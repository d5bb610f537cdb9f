// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Attention by exchanged heads: what its work keeps, and where a call of it has everything.
#pragma once

#include <array>

#include "ops/attention/ranks/heads.h"
#include "ops/row_moves.h"

namespace lathe {

// A tensor that is cut along the tokens.
struct HeadsTensor {
  int tensor = 0;
  bool keys = false;  // tokens and heads of keys
  bool rows = false;  // float32 [B, H, tokens]: one number a row
  bool there = true;  // an input; else a result
};

struct HeadsRoutes {
  RowRoute there, back;
};

class HeadsPrepared final : public Prepared {
 public:
  HeadsRoutes queries, keys;
  int64_t all_queries = 0, all_keys = 0;  // of the part that the ranks hold together
  RankMoves dsinks;                       // rows are ranks' shares
  // Two levels: the part among the others, and what the ring made of it.
  lathe_shard ring;
  std::unique_ptr<const Prepared> of_ring;
  // Room for the messages of one hop. A group runs one call at a time.
  mutable std::vector<Transfer> sends, receives;

  const HeadsRoutes& axis(bool of_keys) const { return of_keys ? keys : queries; }
  int64_t all(bool of_keys) const { return of_keys ? all_keys : all_queries; }
};

// Where a traveller lies in the workspace.
struct HeadsSpot {
  int64_t message = 0;  // a share of the heads for, or from, each other rank
  int64_t whole = 0;    // [all tokens, batch, share of the heads]
  int64_t staged = 0;   // packed: what came or goes, in the order of the messages
  int64_t dense = 0;    // of rows: [batch, share of the heads, all tokens]
};

struct HeadsLaid {
  const HeadsPrepared* prepared = nullptr;
  HeadShare share;
  int64_t batch = 1;
  std::array<HeadsSpot, attention::count> spots;
  int64_t slopes = 0, inner = 0, inner_bytes = 0;
  size_t total = 0;
};

class AttentionHeads final : public ComposedWork {
 public:
  AttentionHeads(const lathe_problem& problem, const AttentionRequest& request, Group* group);
  Status split();
  Status make_part(const lathe_problem& problem, const Extents& promised, const DeviceFacts& facts);

  Result<std::unique_ptr<const Prepared>> prepare(const lathe_shard& shard) const override;
  Result<size_t> workspace_bytes(const Call& call) const override;
  Result<Estimate> estimate(const Call& call) const override;
  Status run(const Call& call) const override;

 private:
  friend class HeadsRun;
  bool packed() const { return request_.problem.packed; }
  Letter token_letter(bool keys) const {
    return keys ? (packed() ? Letter::Tk : Letter::Sk) : (packed() ? Letter::Tq : Letter::Sq);
  }
  int64_t heads_of(const HeadsTensor& each, const HeadShare& share) const {
    return each.keys ? share.kv_heads : share.q_heads;
  }
  int64_t width_of(const HeadsTensor& each) const;
  int64_t element_bytes(const HeadsTensor& each) const {
    return each.rows ? 4 : bytes_of(request_.problem.element);
  }
  bool sums(const HeadsTensor& each, const HeadShare& share) const {
    return each.keys && !each.there && share.repeat > 1;
  }
  Status lay_out(const Call& call, const HeadsTensor& each, HeadsLaid* laid,
                 Sections* sections) const;
  Result<HeadsLaid> lay_out(const Call& call) const;
  Call inner_call(const Call& call, const HeadsLaid& laid) const;

  AttentionRequest request_;
  Group* group_;  // of the ranks that exchange heads
  std::shared_ptr<Group> of_heads_;
  lathe_group of_ring_;  // without a second level: none
  bool reduces_;         // dsinks are summed over the ranks
  std::vector<HeadsTensor> travellers_;
  std::vector<int> declared_;
  std::unique_ptr<Part> part_;
  RowKernels kernels_;
  std::shared_ptr<const Kernel> sum_;
};

}  // namespace lathe
