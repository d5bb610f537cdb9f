// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover lse_merge against the definition in double: rows that are empty on either side
// or both, sinks, every type and width, strides, and any order of many blocks.
#include <algorithm>
#include <random>

#include "tests/harness/check.h"
#include "tests/numbers.h"

namespace {

using namespace apitest;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Form {
  int64_t batch = 1, tokens = 1, heads = 1, width = 64;
  int64_t rows() const { return batch * tokens * heads; }
  std::vector<int64_t> out() const { return {batch, tokens, heads, width}; }
  std::vector<int64_t> lse() const { return {batch, heads, tokens}; }
  // Returns the index in lse of row r = (batch, token, head).
  size_t lse_at(int64_t r) const {
    const int64_t head = r % heads, token = r / heads % tokens, b = r / heads / tokens;
    return static_cast<size_t>((b * heads + head) * tokens + token);
  }
  size_t out_at(int64_t r, int64_t column) const { return static_cast<size_t>(r * width + column); }
};

struct Partial {
  Values out, lse;
};

// A row whose lse is -inf holds NaN, which must not matter.
Partial random_partial(const Form& form, lathe_dtype type, std::mt19937& random, double empty) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  Partial made{Values(Call::count(form.out())), Values(Call::count(form.lse()))};
  for (int64_t r = 0; r < form.rows(); ++r) {
    const bool none = uniform(random) < empty;
    const double spread = random() % 8 == 0 ? 1e4 : 3;
    made.lse[form.lse_at(r)] = none ? -kInfinity : static_cast<float>(spread * normal(random));
    for (int64_t c = 0; c < form.width; ++c) {
      made.out[form.out_at(r, c)] = none ? NAN : numbers::rounded(type, normal(random));
    }
  }
  return made;
}

Partial merge(const Form& form, const std::vector<Partial>& parts, const Values& sinks) {
  Partial result{Values(Call::count(form.out()), 0.0), Values(Call::count(form.lse()), -kInfinity)};
  for (int64_t r = 0; r < form.rows(); ++r) {
    const size_t at = form.lse_at(r);
    const double sink = sinks.empty() ? -kInfinity : sinks[static_cast<size_t>(r % form.heads)];
    double most = sink;
    for (const Partial& part : parts) most = std::max(most, part.lse[at]);
    if (most == -kInfinity) continue;
    double sum = std::exp(sink - most);
    for (const Partial& part : parts) sum += std::exp(part.lse[at] - most);
    result.lse[at] = most + std::log(sum);
    for (const Partial& part : parts) {
      const double weight = std::exp(part.lse[at] - most) / sum;
      for (int64_t c = 0; weight != 0 && c < form.width; ++c) {
        result.out[form.out_at(r, c)] += weight * part.out[form.out_at(r, c)];
      }
    }
  }
  return result;
}

struct Types {
  lathe_dtype block = LATHE_F32, rounded = LATHE_F32;  // rounded f32: not asked for
  int64_t gap = 0;                                     // elements between tokens and rows of out
};

// Merges the block, if there is one, into `own`.
Partial merged(const Form& form, const Partial& own, const Partial* block, const Values& sinks,
               const Types& types = {}) {
  Call call;
  call.op = "lse_merge";
  call.put("out", LATHE_F32, form.out(), own.out);
  call.put("lse", LATHE_F32, form.lse(), own.lse);
  for (const char* name : {"out", "lse"}) call.tensors.at(name).changed = true;
  if (block != nullptr) {
    call.put("block_out", types.block, form.out(), block->out);
    call.put("block_lse", LATHE_F32, form.lse(), block->lse);
  }
  if (!sinks.empty()) call.put("sinks", LATHE_F32, {form.heads}, sinks);
  if (types.rounded != LATHE_F32) call.want("rounded", types.rounded, form.out());
  for (auto& [name, tensor] : call.tensors) {
    if (name.ends_with("out")) {
      tensor.placement = {.token_gap = types.gap, .batch_gap = 3 * types.gap, .guard = 32};
    }
  }
  const Answer answer = run(call);
  check_no_spills(answer);
  if (types.rounded != LATHE_F32) {
    Values expected = answer.at("out");
    for (double& value : expected) value = numbers::rounded(types.rounded, value);
    CHECK(answer.at("rounded") == expected);
  }
  return {answer.at("out"), answer.at("lse")};
}

// Four float32 roundings and two of ex2, of values up to `scale`.
void check_partial(const Partial& found, const Partial& expected, double scale) {
  check_near(found.lse, expected.lse, 1e-6, 1e-6, "lse");
  check_near(found.out, expected.out, scale * 2e-6, 0, "out");
}

}  // namespace

TEST_CASE("lse_merge: two partials and a sink, in every type") {
  struct Row {
    lathe_dtype block;
    int64_t width;
    bool has_block, sinks;
    lathe_dtype rounded;
  };
  const Row rows[] = {
      {LATHE_F32, 64, true, false, LATHE_F32},   {LATHE_F16, 128, true, true, LATHE_F16},
      {LATHE_BF16, 8, true, false, LATHE_F32},   {LATHE_F32, 256, true, true, LATHE_BF16},
      {LATHE_BF16, 72, true, false, LATHE_BF16}, {LATHE_F32, 96, false, true, LATHE_F16}};
  uint32_t seed = 1;
  for (const Row& row : rows) {
    for (const bool strided : {false, true}) {
      CAPTURE(++seed);
      std::mt19937 random(seed);
      const Form form = {strided ? 3 : 1, strided ? 5 : 29, strided ? 2 : 3, row.width};
      const Partial own = random_partial(form, LATHE_F32, random, 0.3);
      const Partial block = random_partial(form, row.block, random, 0.3);
      Values sinks = {0.5, -kInfinity, 2.0};
      sinks.resize(row.sinks ? static_cast<size_t>(form.heads) : 0);
      std::vector<Partial> parts = {own};
      if (row.has_block) parts.push_back(block);
      const Types types = {row.block, row.rounded, strided ? 8 : 0};
      check_partial(merged(form, own, row.has_block ? &block : nullptr, sinks, types),
                    merge(form, parts, sinks), 5);
    }
  }
}

TEST_CASE("lse_merge: an empty block changes no bit, and both empty give (0, -inf)") {
  std::mt19937 random(7);
  const Form form = {1, 9, 2, 64};
  const Partial before = random_partial(form, LATHE_F32, random, 0.2);
  const Partial empty = random_partial(form, LATHE_F32, random, 1.0);
  const Partial after = merged(form, before, &empty, {});
  CHECK(after.lse == before.lse);
  for (int64_t r = 0; r < form.rows(); ++r) {
    const bool none = before.lse[form.lse_at(r)] == -kInfinity;
    for (int64_t c = 0; c < form.width; ++c) {
      CHECK(after.out[form.out_at(r, c)] == (none ? 0.0 : before.out[form.out_at(r, c)]));
    }
  }
  // The other way round: what it takes it takes as it is.
  const Partial taken = merged(form, empty, &before, {});
  CHECK(taken.lse == after.lse);
  CHECK(taken.out == after.out);
}

TEST_CASE("lse_merge: without anything to merge, rounded is out") {
  std::mt19937 random(9);
  const Form form = {1, 9, 2, 128};
  const Partial own = random_partial(form, LATHE_F32, random, 0.2);
  CHECK(merged(form, own, nullptr, {}, {LATHE_F32, LATHE_BF16}).lse == own.lse);
}

TEST_CASE("lse_merge: many blocks in any order, each order bit for bit") {
  std::mt19937 random(11);
  const Form form = {1, 7, 3, 64};
  std::vector<Partial> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(random_partial(form, LATHE_F32, random, 0.4));
  const Partial expected = merge(form, blocks, {});
  const auto in_order = [&](const std::vector<size_t>& order) {
    Partial state = random_partial(form, LATHE_F32, random, 1.0);  // nothing yet
    for (const size_t i : order) state = merged(form, state, &blocks[i], {});
    return state;
  };
  std::vector<size_t> order = {0, 1, 2, 3, 4, 5};
  for (int turn = 0; turn < 4; ++turn) {
    std::shuffle(order.begin(), order.end(), random);
    const Partial once = in_order(order), again = in_order(order);
    check_partial(once, expected, 5.0 * 6);
    CHECK(same_bits(once.out, again.out));
    CHECK(once.lse == again.lse);
  }
}
