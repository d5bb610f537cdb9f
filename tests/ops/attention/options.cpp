// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/attention/options.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "tests/harness/combinations.h"

namespace apitest {
namespace {

constexpr size_t kCasesOfGroup = 14;
constexpr int64_t kMostWork = 30'000'000;  // products of one case: pairs times widths

// Options that change the code, each with its number of values.
enum Factor { kWidths, kOffsets, kLocal, kSoftcap, kSlopes, kSinks, kType, kDeterministic };
const std::vector<int> kValues = {8, 3, 2, 2, 2, 2, 2, 2};
// By padded width, the widths that a kernel made for it may be given.
std::vector<int64_t> widths_in(int64_t padded) {
  switch (padded) {
    case 64:
      return {64, 8, 40, 16};
    case 96:
      return {96, 72, 80};
    case 128:
      return {128, 104, 112};
    case 192:
      return {192, 136, 168};
    default:
      return {256, 200, 248};
  }
}

constexpr std::pair<int64_t, int64_t> kPaddedWidths[] = {
    {64, 64}, {96, 96}, {128, 128}, {192, 192}, {256, 256}, {192, 128}, {64, 256}, {128, 64}};
constexpr std::pair<int64_t, int64_t> kLengths[] = {
    {97, 97},     {1, 239},     {113, 203}, {64, 128},  {0, 5},  {239, 1},
    {1023, 1024}, {3, 799},     {5, 0},     {128, 217}, {1, 1},  {256, 257},
    {799, 3},     {1024, 1023}, {0, 0},     {1, 4096},  {33, 65}};
constexpr int64_t kShortQueries[] = {0, 1, 17, 64, 97, 130},
                  kShortKeys[] = {0, 1, 40, 64, 129, 203};

class Maker : Draws {
 public:
  using Draws::Draws;

  std::vector<AttentionCase> group(const Choice& choice) {
    return cases_of(kCasesOfGroup, [&](size_t i) { return one(choice, i); });
  }

 private:
  AttentionCase one(const Choice& choice, size_t index) {
    AttentionCase c;
    c.seed = ++seed_;
    const auto [width, value_width] = kPaddedWidths[choice[kWidths]];
    const auto widths = widths_in(width), value_widths = widths_in(value_width);
    c.head_dim = widths[index % widths.size()];
    c.value_dim = value_widths[index / 2 % value_widths.size()];
    c.dtype = choice[kType] ? LATHE_F16 : LATHE_BF16;
    c.packed = choice[kOffsets] > 0;
    c.cu_dtype = choice[kOffsets] == 2 ? LATHE_I64 : LATHE_I32;
    c.backward = true;
    c.deterministic = choice[kDeterministic];
    c.dlse = now_and_then(2);
    c.saved_forward = now_and_then(4);
    c.sinks = choice[kSinks];
    if (choice[kSlopes]) c.slopes = now_and_then(2) ? Slopes::per_head : Slopes::per_sequence;
    if (choice[kSoftcap]) c.softcap = pick(std::array{1.5, 5.0, 30.0});
    if (now_and_then(4)) c.scale = pick(std::array{0.05, 0.2});
    if (now_and_then(3)) c.placement = {.token_gap = 8, .batch_gap = 16, .offset = 8};
    c.ones = index == 5;
    add_heads(&c, index);
    add_lengths(&c);
    if (choice[kLocal]) add_window(&c, index);
    return c;
  }

  // Ratios 1, 3, 8, and one key head for all.
  static void add_heads(AttentionCase* c, size_t index) {
    const int64_t ratios[] = {1, 3, 8, 4};
    c->group = ratios[index % 4];
    c->kv_heads = index % 4 == 3 ? 1 : index % 3 == 0 ? 2 : 1;
  }

  void add_lengths(AttentionCase* c) {
    auto [queries, keys] = kLengths[next_length_++ % std::size(kLengths)];
    const int64_t widths = c->head_dim + c->value_dim;
    if (queries * keys > 500'000 && widths <= 128) {
      c->group = c->kv_heads = 1;  // the long ones alone
    } else if (queries * keys * widths > kMostWork) {
      queries = 250, keys = 249;
    }
    const auto work = [&] { return c->heads() * queries * keys * widths; };
    if (work() > kMostWork) c->kv_heads = 1;
    if (work() > kMostWork) c->group = std::min<int64_t>(c->group, 3);
    c->queries = {queries}, c->keys = {keys};
    if (!c->packed) {
      c->fixed_lengths = now_and_then(4);
      const int64_t batch = 2 * work() > kMostWork ? 1 : pick(std::array{1, 2, 3});
      c->queries.resize(batch, queries), c->keys.resize(batch, keys);
      return;
    }
    // Short ones before and behind, many of them empty on one side or on both.
    const int more = pick(std::array{0, 2, 4});
    for (int i = 0; i < more; ++i) {
      const bool front = i % 2 == 0;
      const int64_t q = pick(kShortQueries), k = now_and_then(4) ? 0 : pick(kShortKeys);
      c->queries.insert(front ? c->queries.begin() : c->queries.end(), q);
      c->keys.insert(front ? c->keys.begin() : c->keys.end(), k);
    }
    if (now_and_then(12)) c->queries.assign(3, 0), c->keys.assign(3, 0);
    c->padding_q = pick(std::array{0, 3, 140});
    c->padding_k = pick(std::array{0, 5, 70});
    if (more > 0 && now_and_then(3)) c->poisoned = random_() % c->queries.size();
  }

  // Causal, a bound on the left, on the right, on both sides, and one that cuts nothing.
  void add_window(AttentionCase* c, size_t index) {
    const int64_t all = *std::max_element(c->keys.begin(), c->keys.end()) + 5;
    const std::tuple<bool, int64_t, int64_t> windows[] = {
        {true, -1, -1}, {false, 1, -1}, {false, -1, 3},  {false, 64, 0}, {false, 0, 0},
        {true, 20, 7},  {false, 40, 9}, {false, all, 0}, {true, -1, 0}};
    std::tie(c->causal, c->left, c->right) = windows[index % std::size(windows)];
  }

  uint64_t seed_ = 0;
  size_t next_length_ = 0;
};

}  // namespace

Groups<AttentionCase> attention_options() { return groups_of(Maker(7), kValues, 5); }

}  // namespace apitest
