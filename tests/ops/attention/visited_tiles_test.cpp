// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The simulator counts what the forward by warpgroups does in problems that are drawn: lengths,
// masks and widths. A brute-force look at every pair says which tiles count: these are multiplied
// and no others, their keys and values are read once for each tile of queries, and each score is
// exponentiated once.
#include <numeric>
#include <random>

#include "reference/attention_tiles.h"
#include "tests/harness/check.h"
#include "tests/ops/attention/case.h"
#include "tests/shard.h"

using namespace apitest;

namespace {

constexpr size_t kCases = 208;
constexpr unsigned kParts = 8;
AttentionCase drawn(size_t number) {
  constexpr std::pair<int64_t, int64_t> kWidths[] = {{64, 64},   {96, 96},   {128, 128},
                                                     {192, 128}, {192, 192}, {256, 256},
                                                     {64, 256},  {128, 64},  {64, 128}};
  std::mt19937 random(static_cast<unsigned>(number));
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  AttentionCase c;
  c.seed = number + 1;
  std::tie(c.head_dim, c.value_dim) = kWidths[number % std::size(kWidths)];
  c.kv_heads = draw(1, 2);
  c.packed = draw(0, 2) == 0;
  c.queries = {draw(1, 400)}, c.keys = {draw(1, 600)};
  for (int64_t more = draw(0, 3); more > 0; --more) {
    c.queries.push_back(c.packed ? draw(0, 300) : c.queries[0]);
    c.keys.push_back(c.packed ? draw(0, 300) : c.keys[0]);
  }
  const int64_t mask = draw(0, 3);
  c.causal = mask == 1;
  if (mask >= 2) c.left = draw(0, 300);
  if (mask == 3) c.right = draw(0, 300);
  return c;
}

// Holds what the problem takes at least, by the tiles of the kernel that ran.
struct Least {
  int64_t m = 0, n = 0, width = 0, value_width = 0;
  bool short_first = false;
  double visits = 0;    // tiles that hold a pair which counts
  double bytes_in = 0;  // of q, once where its tile sees a key, and of k and v once for a visit
  double rows_written = 0;

  Least(const AttentionCase& c, const std::string& spec) {
    const auto constant = [&](const std::string& name) {
      const size_t at = spec.find(" " + name + "=");
      REQUIRE_MESSAGE(at != spec.npos, spec);
      return std::stoll(spec.substr(at + name.size() + 2));
    };
    m = constant("m"), n = constant("n"), short_first = constant("short_first") != 0;
    width = constant("width"), value_width = constant("value_width");
    for (size_t b = 0; b < c.queries.size(); ++b) add_sequence(c, c.queries[b], c.keys[b]);
  }

 private:
  // A window that reaches over so many is none.
  static int64_t most_keys(const AttentionCase& c) {
    return c.packed ? std::accumulate(c.keys.begin(), c.keys.end(), int64_t{0}) : c.keys[0];
  }
  void add_sequence(const AttentionCase& c, int64_t queries, int64_t keys) {
    const ref::PairMask whole{queries, keys, c.causal, c.left, c.right};
    const auto heads = static_cast<double>(c.heads());
    // The first tile may be short; then it begins ahead of the rows, and copies some behind its
    // own. Under a window that ends on the left it is the last one.
    const bool first = short_first && (c.left < 0 || c.left >= most_keys(c));
    const int64_t missing = first ? (queries + m - 1) / m * m - queries : 0;
    for (int64_t at = -missing; at < queries; at += m) {
      const int64_t row = std::max<int64_t>(at, 0), end = std::min(at + m, queries);
      bool any = false;
      for (int64_t key = 0; key < keys; key += n) {
        if (!visible(whole, row, end, key)) continue;
        any = true;
        visits += heads;
        bytes_in +=
            heads * static_cast<double>(2 * std::min(n, keys - key) * (c.head_dim + c.value_dim));
      }
      if (any) bytes_in += heads * static_cast<double>(2 * std::min(m, queries - row) * c.head_dim);
    }
    rows_written += heads * static_cast<double>(queries);
  }
  bool visible(const ref::PairMask& mask, int64_t row, int64_t end, int64_t key) const {
    for (int64_t r = row; r < end; ++r) {
      for (int64_t k = key; k < std::min(key + n, mask.keys); ++k) {
        if (mask.kept(r, k)) return true;
      }
    }
    return false;
  }
};

void check_counts(const AttentionCase& c) {
  CAPTURE(c.text());
  const ref::Attention inputs = make_inputs(c);
  const Answer answer = checked(c, inputs);
  const std::string spec = answer.spec("attention_forward_warpgroups");
  REQUIRE(!spec.empty());
  CAPTURE(spec);
  const Least least(c, spec);
  const auto total = [&](const char* counter) {
    return static_cast<double>(answer.total(counter));
  };
  const auto tile = static_cast<double>(least.m * least.n);
  CHECK(total("tensor_ops") ==
        least.visits * 2 * tile * static_cast<double>(least.width + least.value_width));
  // Lengths of packed sequences are read besides.
  CHECK(total("global_load_bytes") >= least.bytes_in);
  if (!c.packed) CHECK(total("global_load_bytes") == least.bytes_in);
  CHECK(total("global_store_bytes") ==
        least.rows_written * static_cast<double>(2 * c.value_dim + 4));
  for (const char* kind : {"shared_load_conflicts", "shared_store_conflicts", "local_load_requests",
                           "local_store_requests"}) {
    CHECK(total(kind) == 0);
  }
  // Besides the scores, a thread has two rows: the factor of their sums at each visit, and the
  // logarithm and reciprocal of their sums at the end, also in tiles that see nothing.
  double math = 0;
  for (const auto& launch : answer.launches) math += launch.at("by_class").value("math", 0.0);
  const double warps = static_cast<double>(least.m) / 16;
  double tiles = 0;
  for (const int64_t rows : c.queries) {
    tiles += static_cast<double>(c.heads() * ((rows + least.m - 1) / least.m));
  }
  CHECK(math >= least.visits * tile / 32);
  CHECK(math <= least.visits * (tile / 32 + 2 * warps) + tiles * 6 * warps);
}

}  // namespace

FAMILY_CASE("sm90", "forward by warpgroups: counted are the visible tiles of drawn problems") {
  if (!on_simulator()) return;
  const testing::Shard shard = testing::chosen_shard(kParts);
  for (size_t number = 0; number < kCases; ++number) {
    if (shard.has(number)) check_counts(drawn(number));
  }
}
