// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the tables of `dispatch_query` and `dispatch_kv` by moving tokens: every record
// is walked, and buffers must hold what was meant.
#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "api/lathe.h"
#include "tests/collective/documents.h"
#include "tests/harness/support.h"

using namespace lathe;
using namespace lathe::documents;

namespace {

using Json = nlohmann::json;
using Lists = std::vector<std::vector<int64_t>>;

Json answer(const char* kind, const Json& input) {
  const char* out = nullptr;
  const std::string cases = Json{{"cases", {input}}}.dump();
  REQUIRE_MESSAGE(lathe_shard_plan(kind, cases.c_str(), &out) == LATHE_OK, test::error());
  const Json found = Json::parse(out).at("cases").at(0);
  REQUIRE_MESSAGE(!found.contains("error"), found.dump());
  return found;
}

Json answer(const Drawn& drawn) {
  Json shards = Json::array();
  for (const auto& rank : drawn.shards) {
    Json row = Json::array();
    for (const DocumentShard& s : rank) row.push_back({s.document, s.start, s.length});
    shards.push_back(row);
  }
  return answer("dispatch_kv", {{"shards", shards}, {"dst", drawn.dst}});
}

// Each rank receives these tokens; counts[i][j] is how many i receives from j.
std::vector<std::vector<Token>> sent_forward(const Json& record,
                                             const std::vector<std::vector<Token>>& from,
                                             Lists* counts) {
  const size_t world = from.size();
  std::vector<std::vector<Token>> to(world);
  counts->assign(world, std::vector<int64_t>(world));
  for (size_t d = 0; d < world; ++d) to[d].assign(record["num_total_recv_tokens"][d], kNone);
  for (size_t i = 0; i < world; ++i) {
    int64_t position = 0;
    const Json& lengths = record["seq_len"][i];
    for (size_t j = 0; j < lengths.size(); ++j) {
      Json ranks = record["dst_rank"][i][j], offsets = record["dst_offset"][i][j];
      if (!ranks.is_array()) ranks = Json::array({ranks}), offsets = Json::array({offsets});
      const int64_t length = lengths[j];
      for (size_t c = 0; c < ranks.size(); ++c) {
        const int64_t d = ranks[c], offset = offsets[c];
        for (int64_t t = 0; d >= 0 && t < length; ++t) {
          put(to[d], offset + t, from[i][position + t]);
          ++(*counts)[d][i];
        }
      }
      position += length;
    }
  }
  return to;
}

void check_counts(const Json& record, const Lists& counts, bool transposed) {
  for (size_t i = 0; i < counts.size(); ++i) {
    int64_t sum = 0;
    for (size_t j = 0; j < counts.size(); ++j) {
      const int64_t found = transposed ? counts[j][i] : counts[i][j];
      CHECK(record["num_recv_tokens"][i][j] == found);
      sum += found;
    }
    CHECK(record["num_recv_tokens"][i].back() == sum);
    CHECK(record["num_total_recv_tokens"][i] == sum);
  }
}

// Shard k of each rank's buffer, on its way to token `to` of rank `owner`.
template <typename Take>
void each_return(const Json& reverse, const std::vector<std::vector<Token>>& there, Take take) {
  for (size_t d = 0; d < there.size(); ++d) {
    size_t position = 0;
    for (size_t k = 0; k < reverse["num_seqs"][d]; ++k) {
      const int64_t owner = reverse["dst_rank"][d][k], to = reverse["dst_offset"][d][k];
      const int64_t length = reverse["seq_len"][d][k];
      for (int64_t t = 0; t < length; ++t) take(owner, to + t, there[d].at(position++));
    }
    CHECK(position == there[d].size());
  }
}

void check_queries(const Json& forward, const Json& reverse,
                   const std::vector<std::vector<Token>>& before) {
  Lists counts;
  const auto there = sent_forward(forward, before, &counts);
  check_counts(forward, counts, false);
  check_counts(reverse, counts, true);
  auto back = before;
  for (auto& rank : back) std::fill(rank.begin(), rank.end(), kNone);
  each_return(reverse, there,
              [&](int64_t rank, int64_t to, const Token& token) { put(back[rank], to, token); });
  CHECK(back == before);
}

}  // namespace

TEST_CASE("lathe_shard_plan: queries go and come back, 200 draws") {
  std::mt19937 random(6);
  for (int turn = 0; turn < 200; ++turn) {
    const Drawn drawn = draw(random);
    const Json found = answer(drawn);
    check_queries(found["q_forward"], found["q_reverse"], home(drawn.shards));
    const Json same = answer("dispatch_query", {{"seq_len", found["inputs"]["seq_len"]},
                                                {"dispatch", found["inputs"]["q_dispatch"]}});
    CHECK(same["forward"] == found["q_forward"]);
    CHECK(same["reverse"] == found["q_reverse"]);
  }
}

TEST_CASE("lathe_shard_plan: every query shard finds its document's beginning, whole, in order") {
  std::mt19937 random(7);
  for (int turn = 0; turn < 200; ++turn) {
    const Drawn drawn = draw(random);
    const Json found = answer(drawn);
    const Json& layout = found["attention_layout"];
    const auto before = home(drawn.shards);
    Lists counts;
    const auto there = sent_forward(found["kv_forward"], before, &counts);
    check_counts(found["kv_forward"], counts, false);
    check_counts(found["kv_reverse"], counts, true);
    std::vector<int64_t> next(drawn.shards.size());
    for (size_t i = 0; i < drawn.shards.size(); ++i) {
      for (size_t j = 0; j < drawn.shards[i].size(); ++j) {
        const int64_t d = drawn.dst[i][j];
        const DocumentShard& shard = drawn.shards[i][j];
        const int64_t begin = layout["cu_seqlens_kv"][d][next[d]],
                      keys = shard.start + shard.length;
        REQUIRE(layout["cu_seqlens_kv"][d][next[d] + 1] == begin + keys);
        for (int64_t t = 0; t < keys; ++t) REQUIRE(there[d][begin + t] == Token{shard.document, t});
        ++next[d];
      }
    }
    CHECK(layout["num_shards"] == next);
    // Gradients: each copy returns to the slot (copy, token) of its owner, once.
    std::map<std::pair<int64_t, int64_t>, Token> slots;
    each_return(found["kv_reverse"], there, [&](int64_t rank, int64_t to, const Token& token) {
      REQUIRE(slots.emplace(std::pair(rank, to), token).second);
      REQUIRE(token == before[rank][to % static_cast<int64_t>(before[rank].size())]);
    });
  }
}

TEST_CASE("lathe_shard_plan: lists of copies keep their shape, and padding goes nowhere") {
  const Json found = answer("dispatch_query", Json::parse(R"({"seq_len": [[3, 0], [2]],
                                        "dispatch": [[[0, 1], [-1, -1]], [[-1, 0]]]})"));
  CHECK(found["forward"]["dst_rank"].dump() == "[[[0,1],[-1,-1]],[[-1,0]]]");
  CHECK(found["forward"]["dst_offset"].dump() == "[[[0,0],[0,0]],[[0,3]]]");
  CHECK(found["forward"]["num_seqs"].dump() == "[1,1]");
  CHECK(found["reverse"]["seq_recv_mask"].dump() == "[[[1,1],[0,0]],[[0,1]]]");
  CHECK(found["reverse"]["dst_offset"].dump() == "[[0,2],[3,0]]");
}
