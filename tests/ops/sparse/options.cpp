// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/sparse/options.h"

#include <algorithm>
#include <array>

#include "tests/harness/combinations.h"

namespace apitest {
namespace {

using sparse_case::Lists;

constexpr size_t kCasesOfGroup = 14;
constexpr int64_t kMostWork = 12'000'000;  // products of one case: rows, heads, entries, widths

// Options that change the code, each with its number of values.
enum Factor { kWidths, kGroup, kOffsets, kSinks, kType, kDeterministic };
const std::vector<int> kValues = {8, 4, 3, 2, 2, 2};

struct Widths {
  int head_dim, rope_dim, value_dim;
  bool values_in_keys;
};
constexpr Widths kAllWidths[] = {{64, 0, 64, false},   {128, 64, 128, false}, {40, 24, 72, false},
                                 {192, 64, 128, true}, {256, 8, 256, true},   {512, 64, 512, false},
                                 {512, 64, 512, true}, {576, 0, 512, true}};
// Query heads of a key head: tiles of 16, some of them of one or two heads, and of 48 and 64.
constexpr int kGroups[][3] = {{1, 2, 1}, {8, 16, 8}, {40, 33, 48}, {64, 128, 70}};
constexpr int kTopk[] = {31, 1, 64, 65, 128, 95, 63, 16};

class Maker : Draws {
 public:
  using Draws::Draws;

  std::vector<SparseCase> group(const Choice& choice) {
    const int* groups = kGroups[choice[kGroup]];
    const int heads = groups[random_() % 3];
    return cases_of(kCasesOfGroup, [&](size_t i) { return one(choice, heads, i); });
  }

 private:
  SparseCase one(const Choice& choice, int heads, size_t index) {
    SparseCase c;
    auto& s = c.shape;
    c.seed = ++seed_;
    const Widths& widths = kAllWidths[choice[kWidths]];
    s.head_dim = widths.head_dim, s.rope_dim = widths.rope_dim, s.value_dim = widths.value_dim;
    s.values_in_keys = widths.values_in_keys;
    s.group = heads, s.sinks = choice[kSinks] != 0;
    s.packed = choice[kOffsets] > 0;
    c.cu_dtype = choice[kOffsets] == 2 ? LATHE_I64 : LATHE_I32;
    c.dtype = choice[kType] != 0 ? LATHE_F16 : LATHE_BF16;
    c.deterministic = choice[kDeterministic] != 0;
    c.backward = true;
    c.saved_forward = now_and_then(4), c.statistics = !now_and_then(5);
    if (!c.deterministic && now_and_then(3)) c.splits = 2 + static_cast<int64_t>(random_() % 4);
    if (now_and_then(3)) c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    add_list(&s, index);
    add_lengths(&c);
    return c;
  }

  void add_list(sparse_case::Shape* s, size_t index) {
    s->topk = kTopk[index % std::size(kTopk)];
    s->absolute = now_and_then(4);
    if (!s->absolute && now_and_then(3)) {
      s->block = pick(std::array{2, 8, 16, 128});
      s->topk = s->block > 16 ? 2 : 1 + s->topk / 16;
    }
    s->causal = now_and_then(2), s->q_pos = now_and_then(3);
    constexpr Lists kLists[] = {Lists::mixed,   Lists::mixed,     Lists::mixed, Lists::all,
                                Lists::nothing, Lists::last_only, Lists::mixed, Lists::one_key};
    s->lists = kLists[index % std::size(kLists)];
  }

  void add_lengths(SparseCase* c) {
    auto& s = c->shape;
    s.kv_heads = s.group <= 16 && now_and_then(2) ? 2 : 1;
    const int64_t row =
        int64_t{s.kv_heads} * s.group * s.topk * s.block * (s.head_dim + s.rope_dim + s.value_dim);
    const int most = static_cast<int>(std::clamp<int64_t>(kMostWork / row, 1, 9));
    const int rows = 1 + static_cast<int>(random_() % static_cast<uint32_t>(most));
    const int keys = pick(std::array{1, 25, 97, 139, 200, 0});
    if (!s.packed) {
      c->fixed = now_and_then(4);
      c->tokens = now_and_then(4);
      const size_t batch = c->tokens || most < 4 ? 1 : 1 + random_() % 2;
      s.rows.assign(batch, rows), s.keys.assign(batch, keys);
      return;
    }
    s.rows = {rows}, s.keys = {keys};
    // Short ones before and behind, many of them empty on one side or on both.
    for (int i = pick(std::array{0, 2, 3}); i > 0; --i) {
      const bool front = i % 2 == 0;
      const int q = static_cast<int>(random_() % 3), k = pick(std::array{0, 1, 40, 65});
      s.rows.insert(front ? s.rows.begin() : s.rows.end(), q);
      s.keys.insert(front ? s.keys.begin() : s.keys.end(), k);
    }
    s.padding_q = pick(std::array{0, 0, 3}), s.padding_k = pick(std::array{0, 5});
  }

  uint32_t seed_ = 0;
};

}  // namespace

Groups<SparseCase> sparse_options() { return groups_of(Maker(7), kValues, 5, 100); }

}  // namespace apitest
