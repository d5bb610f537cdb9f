// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The orders of tiles of Hopper's forward on the simulator: all rows of all heads once, long tiles
// first, and the same work for each block of threads.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "codegen/nvrtc.h"
#include "ops/attention/forward/sm90.h"
#include "sim/tests/kernel_run.h"

using namespace lathe;

namespace {

// As the kernel has them.
struct OrderParams {
  AttentionForwardParams forward;
  AttentionTileOrder order;
  void* items;  // Item [blocks, most]
  int most, reserved;
};
struct Item {
  int turn, sequence, head, first, written, rows, keys, unused;
};

const char* const kKernel = R"(
#include "attention/sm90/packed_order.cuh"
#include "attention/sm90/tile_order.cuh"
using namespace lathe;
struct Config {
  using Element = bf16;
  using CuSeqlens = int;
  static constexpr int kTileM = TILE_M, kTileN = 128, kThreads = 32;
  static constexpr bool kPacked = PACKED, kLocal = LOCAL, kPackGqa = PACK_GQA, kListed = false;
  static constexpr bool kWholeGroups = true, kShortFirst = LOCAL;
};
struct OrderParams {
  AttentionForwardParams forward;
  AttentionTileOrder order;
  int* items;
  int most, reserved;
};
__device__ void put(const OrderParams& p, int& count, unsigned turn, const QueryTile& tile) {
  int* to = p.items + (static_cast<long long>(blockIdx.x) * p.most + count++) * 8;
  const int words[8] = {static_cast<int>(turn), tile.sequence, tile.head, tile.first,
                        tile.written, tile.rows, tile.keys, 0};
  if (threadIdx.x < 8) to[threadIdx.x] = words[threadIdx.x];
}
extern "C" __global__ void entry(const __grid_constant__ OrderParams p) {
  int count = 0;
  QueryTile tile;
  if constexpr (Config::kPacked) {
    PackedOrder<Config> order(p.forward, p.order);
    for (unsigned turn = 0; count < p.most && order.find(turn, tile); ++turn) {
      put(p, count, turn, tile);
    }
  } else {
    const TileOrder<Config> order = {p.forward, p.order};
    for (unsigned turn = 0; turn < order.turns(); ++turn) {
      if (order.tile(turn, tile)) put(p, count, turn, tile);
    }
  }
  tile = {};
  if (count < p.most) put(p, count, 0xffffffffu, tile);
}
)";

struct OrderCase {
  std::vector<int> rows, keys;  // by sequence
  int padding = 0, heads = 1, group = 1, tile = 128, blocks = 5, section = 1,
      section_keys = 1 << 20, section_sequences = 64;
  bool packed = true, local = true;
  int left = -1, right = 0;  // the window, with `local`

  int used() const { return tile / group * group; }
  int columns() const { return heads / group; }
  AttentionMask mask(int64_t queries, int64_t key_count) const {
    return {queries, key_count, local ? left : -1, local ? right : -1};
  }
};

std::vector<int> starts(const std::vector<int>& lengths) {
  std::vector<int> out = {0};
  for (const int length : lengths) out.push_back(out.back() + length);
  return out;
}

std::string text_of(const OrderCase& c) {
  std::string text = kKernel;
  const std::map<std::string, std::string> words = {{"TILE_M", std::to_string(c.tile)},
                                                    {"PACKED", c.packed ? "true" : "false"},
                                                    {"LOCAL", c.local ? "true" : "false"},
                                                    {"PACK_GQA", c.group > 1 ? "true" : "false"}};
  for (const auto& [word, value] : words) {
    for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
      text.replace(at, word.size(), value);
    }
  }
  return text;
}

// The tiles of each block of threads.
std::vector<std::vector<Item>> run(const Compiler& compiler, const OrderCase& c,
                                   const OrderParams* given = nullptr) {
  const auto compiled = compiler.compile(text_of(c), "sm_80");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  sim::test::Device device("sm_80");
  device.load(compiled->ptx);
  const auto at = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  OrderParams p = {};
  if (given != nullptr) p = *given;
  const int sequences = static_cast<int>(c.rows.size());
  if (c.packed) {
    p.forward.cu_seqlens_q = at(device.upload(starts(c.rows)));
    p.forward.cu_seqlens_k = at(device.upload(starts(c.keys)));
    p.forward.seq_q = std::max(starts(c.rows).back(), 0) + c.padding;
    p.forward.seq_k = std::max(starts(c.keys).back(), 0);
    p.order.section = c.section, p.order.section_keys = c.section_keys;
    p.order.section_sequences = c.section_sequences;
    p.forward.sequences = sequences, p.forward.heads = c.heads;
    p.forward.kv_heads = c.columns();
    p.forward.window_left = c.left, p.forward.window_right = c.right;
    p.order.first_longest = c.local && c.mask(1, 1).first_longest() ? 1 : 0;
  }
  p.most = 400;
  p.items = at(device.buffer(sizeof(Item) * p.most * c.blocks));
  const auto outcome = device.run("entry", static_cast<uint32_t>(c.blocks), 32, p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  const auto all = device.download<Item>(reinterpret_cast<uint64_t>(p.items), p.most * c.blocks);
  std::vector<std::vector<Item>> out(c.blocks);
  for (int b = 0; b < c.blocks; ++b) {
    for (int i = 0; i < p.most && all[b * p.most + i].turn >= 0; ++i) {
      out[b].push_back(all[b * p.most + i]);
    }
  }
  return out;
}

// Rows of a tile that it writes, in tile rows.
int end_of(const OrderCase& c, const Item& item) {
  return std::min(item.first + c.used(), item.written * c.group);
}
// Blocks of keys that a tile sees.
int cost_of(const OrderCase& c, const Item& item) {
  const int last = std::min(end_of(c, item) / c.group, item.rows), first = item.first / c.group;
  if (first >= last) return 1;
  return 1 + static_cast<int>(
                 attention_key_blocks(c.mask(item.rows, item.keys), first, last, 128).all.size());
}
// The same of all tiles of a sequence.
int cost_of(const AttentionMask& mask, int tile, bool short_first) {
  int sum = 0;
  for (int64_t t = 0; t * tile < mask.queries; ++t) {
    const BlockRange own = attention_tile_rows(t, tile, 1, mask.queries, short_first);
    sum += 1 + static_cast<int>(attention_key_blocks(mask, own.begin, own.end, 128).all.size());
  }
  return sum;
}
int cost_of(const OrderCase& c, const std::vector<std::vector<Item>>& tiles) {
  int sum = 0;
  for (const auto& block : tiles) {
    for (const Item& item : block) sum += cost_of(c, item);
  }
  return sum;
}

void check_cover(const OrderCase& c, const std::vector<std::vector<Item>>& tiles) {
  std::map<std::pair<int, int>, std::vector<int>> seen;  // by sequence and head: visits of each row
  const int sequences = std::max<int>(static_cast<int>(c.rows.size()), 1);
  for (int b = 0; b < sequences; ++b) {
    const int rows = c.rows.empty() ? 0 : c.rows[b];
    const int written = rows + (b + 1 == sequences ? c.padding : 0);
    for (int head = 0; head < c.columns(); ++head) {
      seen[{b, head}].assign(static_cast<size_t>(written) * c.group, 0);
    }
  }
  for (const auto& block : tiles) {
    for (const Item& item : block) {
      std::vector<int>& rows = seen.at({item.sequence, item.head});
      REQUIRE(item.first >= 0);
      REQUIRE(item.first % c.group == 0);
      for (int r = item.first; r < end_of(c, item); ++r) ++rows.at(r);
    }
  }
  for (const auto& [of, rows] : seen) {
    CAPTURE(of.first);
    CAPTURE(of.second);
    CHECK(std::all_of(rows.begin(), rows.end(), [](int count) { return count == 1; }));
  }
}
// The busiest block's work over the average.
double imbalance(const OrderCase& c, const std::vector<std::vector<Item>>& tiles) {
  std::vector<int> work(tiles.size(), 0);
  for (size_t b = 0; b < tiles.size(); ++b) {
    for (const Item& item : tiles[b]) work[b] += cost_of(c, item);
  }
  const double all = std::accumulate(work.begin(), work.end(), 0);
  return *std::max_element(work.begin(), work.end()) * static_cast<double>(work.size()) / all;
}

std::shared_ptr<const Compiler> compiler() {
  const auto opened = Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

OrderCase random_case(int sequences, uint32_t seed) {
  std::mt19937 random(seed);
  OrderCase c;
  for (int i = 0; i < sequences; ++i) {
    c.rows.push_back(random() % 4 == 0 ? 0 : static_cast<int>(random() % 500));
    c.keys.push_back(random() % 5 == 0 ? 0 : c.rows.back() + static_cast<int>(random() % 300));
  }
  return c;
}

}  // namespace

TEST_CASE("packed sequences: each row of each head is in one tile") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::vector<OrderCase> cases;
  for (const bool local : {true, false}) {
    OrderCase c = random_case(70, 3);  // more than a warp has lanes
    c.heads = 6, c.group = 2, c.section = 2, c.section_keys = 900, c.padding = 150;
    c.local = local, c.blocks = 7;
    cases.push_back(c);
    c.left = 200, c.right = -1;
    cases.push_back(c);
    c = random_case(9, 5);
    c.heads = 3, c.section = 3, c.tile = 64, c.local = local, c.blocks = 4;
    cases.push_back(c);
    c = {};
    c.padding = 300, c.heads = 2, c.local = local;
    cases.push_back(c);  // no sequence at all
    c.rows = {128, 0, 129, 1}, c.keys = {128, 50, 4000, 0}, c.padding = 0;
    cases.push_back(c);
  }
  for (const OrderCase& c : cases) {
    CAPTURE(c.rows.size());
    CAPTURE(c.local);
    check_cover(c, run(*nvrtc, c));
  }
}

TEST_CASE("packed sequences: blocks of threads have the same work") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  OrderCase c;
  c.rows = c.keys = {2048, 2048, 2048, 2048};
  c.heads = 32, c.group = 4, c.section = 8, c.blocks = 132;
  CHECK(imbalance(c, run(*nvrtc, c)) < 1.04);
  c.rows.assign(60, 128), c.rows.push_back(16384), c.keys = c.rows;
  CHECK(imbalance(c, run(*nvrtc, c)) < 1.01);
  c = random_case(40, 9);
  c.heads = 32, c.group = 4, c.section = 8, c.blocks = 132;
  CHECK(imbalance(c, run(*nvrtc, c)) < 1.15);
  c.left = 100, c.right = -1;
  CHECK(imbalance(c, run(*nvrtc, c)) < 1.15);
}

// Whichever window there is: of a first tile that is short and a last one, the one that costs less.
TEST_CASE("packed sequences: the short tile is the one that sees fewest keys") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  const std::pair<int, int> windows[] = {{-1, 0}, {256, 0}, {500, -1}, {100, -1}, {-1, 90}};
  for (const auto& [left, right] : windows) {
    OrderCase c;
    c.rows = {1000, 700, 130, 1}, c.keys = {1000, 828, 386, 1000};
    c.heads = 2, c.left = left, c.right = right;
    int least = 0;
    for (size_t b = 0; b < c.rows.size(); ++b) {
      const AttentionMask mask = c.mask(c.rows[b], c.keys[b]);
      least += c.heads * std::min(cost_of(mask, c.tile, false), cost_of(mask, c.tile, true));
    }
    CAPTURE(left);
    CAPTURE(right);
    const auto tiles = run(*nvrtc, c);
    check_cover(c, tiles);
    CHECK(cost_of(c, tiles) == least);
  }
}

// Sections with fewer tiles than there are blocks of threads, and with a few more.
TEST_CASE("packed sequences: small sections go on with the blocks that the last one left out") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  for (const bool local : {true, false}) {
    for (const int of_section : {1, 3, 7}) {
      OrderCase c;
      c.rows.assign(48, 512), c.keys.assign(48, 4096);
      c.heads = 8, c.group = 4, c.section = 1, c.section_sequences = of_section, c.blocks = 100;
      c.local = local;
      const auto tiles = run(*nvrtc, c);
      check_cover(c, tiles);
      CAPTURE(of_section);
      CHECK(imbalance(c, tiles) < 1.06);
    }
  }
}

// The host chooses the sections here, and the keys of one head are more than L2 holds.
TEST_CASE("packed sequences: long caches leave no block of threads without work") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  struct Long {
    int sequences, rows, keys;
    double most;
  };
  for (const Long& of : {Long{16, 512, 131072, 1.05}, Long{64, 1, 100000, 1.05}}) {
    OrderCase c;
    c.rows.assign(of.sequences, of.rows), c.keys.assign(of.sequences, of.keys);
    c.heads = 32, c.group = 4, c.blocks = 132;
    OrderParams p = {};
    p.forward.sequences = of.sequences, p.forward.heads = 32, p.forward.kv_heads = 8;
    p.forward.seq_q = of.rows * of.sequences, p.forward.seq_k = of.keys * of.sequences;
    p.forward.head_dim = p.forward.value_dim = 128;
    AttentionTiling tiling;
    tiling.m = c.tile, tiling.n = 128, tiling.local = tiling.packed = tiling.pack_gqa = 1;
    const AttentionTileOrder order = attention_tile_order(tiling, p.forward, 0, c.blocks);
    c.section = order.section, c.section_keys = order.section_keys;
    c.section_sequences = order.section_sequences;
    const auto tiles = run(*nvrtc, c);
    CAPTURE(of.rows);
    check_cover(c, tiles);
    CHECK(imbalance(c, tiles) < of.most);
  }
}

TEST_CASE("packed sequences: offsets that do not ascend end as well") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  OrderCase c;
  c.rows = {500, -300, 700, -900, 1500}, c.keys = {400, -100, 900, -1000, 300};
  c.heads = 4, c.section = 4;
  size_t most = 0;
  for (const auto& block : run(*nvrtc, c)) most = std::max(most, block.size());
  CHECK(most < 400);
}

TEST_CASE("dense heads: each row once, and the same work under a mask") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  struct Dense {
    int sequences, heads, rows, width, tile;
    double most;
    int left = -1, right = 0;
  };
  for (const Dense& of :
       {Dense{4, 64, 4096, 64, 192, 1.01}, Dense{8, 64, 2048, 64, 192, 1.01},
        Dense{2, 64, 8192, 64, 192, 1.01}, Dense{4, 32, 4096, 128, 128, 1.01},
        Dense{3, 5, 1000, 64, 192, 2.0}, Dense{64, 8, 512, 128, 128, 1.05},
        Dense{2, 64, 8192, 64, 192, 1.01, 1024, -1}, Dense{4, 32, 4096, 128, 128, 1.03, 1024, -1},
        Dense{3, 5, 100, 64, 192, 2.0, 10, -1}}) {
    OrderCase c;
    c.left = of.left, c.right = of.right;
    c.packed = false, c.heads = of.heads, c.tile = of.tile, c.blocks = 132;
    c.rows.assign(of.sequences, of.rows), c.keys = c.rows;
    OrderParams p = {};
    p.forward.sequences = of.sequences, p.forward.heads = p.forward.kv_heads = of.heads;
    p.forward.seq_q = p.forward.seq_k = of.rows;
    p.forward.window_left = of.left, p.forward.window_right = of.right;
    p.forward.head_dim = p.forward.value_dim = of.width;
    p.forward.tiles = (of.rows + of.tile - 1) / of.tile;
    AttentionTiling tiling;
    tiling.m = of.tile, tiling.n = 128, tiling.local = 1;
    p.order = attention_tile_order(tiling, p.forward,
                                   int64_t{p.forward.tiles} * of.sequences * of.heads, c.blocks);
    c.blocks = static_cast<int>(std::min<int64_t>(p.order.blocks, c.blocks));
    const auto tiles = run(*nvrtc, c, &p);
    CAPTURE(of.rows);
    check_cover(c, tiles);
    CHECK(imbalance(c, tiles) < of.most);
  }
}
