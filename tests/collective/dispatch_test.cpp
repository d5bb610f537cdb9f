// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the tokens that destinations receive, and the planner that chooses
// destinations.
#include "collective/plans/dispatch.h"

#include <climits>
#include <map>

#include "collective/plans/planner.h"
#include "tests/collective/documents.h"

using namespace lathe;
using namespace lathe::documents;

TEST_CASE("dispatch: shared contexts send a key shard once and hold the same keys") {
  std::mt19937 random(8);
  int64_t apart = 0, shared = 0;  // tokens of keys
  for (int turn = 0; turn < 500; ++turn) {
    const Drawn drawn = draw(random);
    const auto contexts = shared_contexts(drawn.shards, drawn.dst, kCausal);
    for (const SharedContext& context : contexts) {
      shared += context.kv_tokens;
      std::vector<Token> keys(context.kv_tokens, kNone);
      std::map<Token, int> sent;
      for (const auto& k : context.keys) {
        const DocumentShard& shard = drawn.shards[k.rank][k.shard];
        CHECK(++sent[{k.rank, k.shard}] == 1);
        for (int64_t t = 0; t < k.length; ++t) {
          put(keys, k.offset + t, {shard.document, shard.start + t});
        }
      }
      int64_t queries = 0;
      for (const auto& q : context.queries) {
        const DocumentShard& shard = drawn.shards[q.rank][q.shard];
        CHECK(drawn.dst[q.rank][q.shard] == static_cast<int64_t>(&context - contexts.data()));
        CHECK(q.q_offset == queries);
        queries += q.q_length, apart += q.k_length;
        REQUIRE(q.k_length == shard.start + shard.length);
        for (int64_t t = 0; t < q.k_length; ++t) {
          REQUIRE(keys[q.k_offset + t] == Token{shard.document, t});
        }
      }
      CHECK(queries == context.q_tokens);
    }
  }
  CHECK(shared < apart);
}

TEST_CASE("dispatch: documents that do not fit are refused by name") {
  const auto refused = [](const DocumentShards& shards, std::initializer_list<const char*> all) {
    const auto chains = document_chains(shards);
    REQUIRE_FALSE(chains.ok());
    for (const char* part : all) {
      CHECK_MESSAGE(chains.status().text().find(part) != std::string::npos, chains.status().text());
    }
  };
  refused({{{0, 0, 4}, {0, 5, 2}}}, {"starts at 5", "end at 4"});
  refused({{{0, 0, 4}}, {{0, 3, 2}}}, {"shards[1][0]", "starts at 3", "end at 4"});
  refused({{}, {{0, 0, -2}}}, {"shards[1][0] has -2 tokens"});
  refused({{{0, 0, INT_MAX}, {1, 0, 1}}}, {"shards[0] have 2147483648 tokens"});
  refused({{{7, 0, INT_MAX}}, {{7, INT_MAX, 1}}}, {"document 7 has 2147483648 tokens"});
  refused({}, {"world_size is 0"});
}

TEST_CASE("planner: homes and documents stay, loads come within the tolerance or nothing fits") {
  std::mt19937 random(9);
  int even = 0, turns = 0;
  for (; turns < 300; ++turns) {
    const int world = 1 + static_cast<int>(random() % 8);
    const auto cu = cases::random_offsets(random, world * 512, 1 + random() % 5);
    DocumentShards shards(world);
    for (int rank = 0; rank < world; ++rank) {  // a contiguous cut, document by document
      const Interval own = chunk(rank, 0, cu.back(), world);
      for (size_t n = 0; n + 1 < cu.size(); ++n) {
        const int64_t begin = std::max(own.begin, cu[n]), end = std::min(own.end, cu[n + 1]);
        if (begin < end)
          shards[rank].push_back({static_cast<int64_t>(n), begin - cu[n], end - begin});
      }
    }
    const PlannerLimits limits = {1, 20, random() % 2 == 0 ? 1 : 8, 4, 1};
    const auto plan = balance_shards(shards, limits);
    REQUIRE_MESSAGE(plan.ok(), plan.status().text());
    CHECK(home(plan->shards) == home(shards));
    int64_t total = 0, before = 0;
    std::vector<int64_t> load(world);
    for (int rank = 0; rank < world; ++rank) {
      before += plan->load_before[rank];
      for (size_t j = 0; j < plan->shards[rank].size(); ++j) {
        const DocumentShard& shard = plan->shards[rank][j];
        for (int64_t t = 0; t < shard.length; ++t) {  // pair by pair
          load[plan->dst[rank][j]] += shard.start + t + 1, total += shard.start + t + 1;
        }
      }
    }
    CHECK(load == plan->load);
    CHECK(total == before);
    const auto most = [](const auto& loads) {
      return *std::max_element(loads.begin(), loads.end());
    };
    CHECK(most(plan->load) <= most(plan->load_before));
    const bool within = most(plan->load) * world * 20 <= total * 21;
    even += within ? 1 : 0;
  }
  CHECK(even >= turns * 97 / 100);  // one aligned piece may outweigh a small document's gap
}
