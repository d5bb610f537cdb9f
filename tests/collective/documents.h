// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Documents are cut anywhere; their pieces are on any rank in any order, to be computed anywhere.
#pragma once

#include <doctest/doctest.h>

#include <random>

#include "collective/plans/dispatch.h"
#include "tests/collective/cases.h"

namespace lathe::documents {

struct Drawn {
  DocumentShards shards;
  Table dst;
};

inline Drawn draw(std::mt19937& random) {
  const int world = 1 + static_cast<int>(random() % 6);
  Drawn out = {DocumentShards(world), Table(world)};
  for (int64_t document = static_cast<int64_t>(random() % 5); document >= 0; --document) {
    const auto cuts = cases::random_offsets(random, random() % 40, 1 + random() % 4);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      auto& rank = out.shards[random() % world];
      const auto at = static_cast<std::ptrdiff_t>(random() % (rank.size() + 1));
      rank.insert(rank.begin() + at, {document, cuts[i], cuts[i + 1] - cuts[i]});
    }
  }
  for (int rank = 0; rank < world; ++rank) {
    for (size_t j = 0; j < out.shards[rank].size(); ++j) {
      out.dst[rank].push_back(static_cast<int64_t>(random() % world));
    }
  }
  return out;
}

using Token = std::pair<int64_t, int64_t>;  // document, position
inline const Token kNone = {-1, -1};

// Returns the rank buffers at home.
inline std::vector<std::vector<Token>> home(const DocumentShards& shards) {
  std::vector<std::vector<Token>> out(shards.size());
  for (size_t rank = 0; rank < shards.size(); ++rank) {
    for (const DocumentShard& shard : shards[rank]) {
      for (int64_t t = 0; t < shard.length; ++t) {
        out[rank].push_back({shard.document, shard.start + t});
      }
    }
  }
  return out;
}

// Writes a slot; every slot is written exactly once.
inline void put(std::vector<Token>& buffer, int64_t at, const Token& token) {
  REQUIRE(at >= 0);
  REQUIRE(at < static_cast<int64_t>(buffer.size()));
  REQUIRE(buffer[at] == kNone);
  buffer[at] = token;
}

}  // namespace lathe::documents
