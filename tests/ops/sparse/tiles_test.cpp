// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// sparse_flash_attention with tiles that are not the default, on sm_80 and under several schedules:
// random rows and lists for each of a set of configurations that covers every width, tile, type and
// flag; what must hold whatever the numbers are; and what the kernels read and multiply.
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/sparse/case.h"

namespace {

using namespace apitest;
using sparse_case::Lists;

struct Row {
  lathe_dtype dtype;
  int head_dim, rope_dim, value_dim;
  const char* tile;
  std::vector<int> groups;  // query heads of a key head that the tile is offered for
  std::string flags;        // of packed, sinks, wide, values_in_keys, ordered
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

const std::vector<Row> kForward = {
    {LATHE_BF16, 64, 0, 64, "m=64 n=64 groups=1 stages=3 warps=4", {64}, ""},
    {LATHE_F16, 64, 32, 64, "m=16 n=32 groups=2 stages=3 warps=2", {8}, "packed sinks"},
    {LATHE_BF16, 128, 64, 128, "m=16 n=64 groups=4 stages=3 warps=4", {1}, "packed wide"},
    {LATHE_F16, 72, 8, 120, "m=48 n=32 groups=2 stages=3 warps=6", {40}, "sinks"},
    {LATHE_BF16, 256, 64, 256, "m=64 n=32 groups=1 stages=3 warps=4", {128}, "packed sinks"},
    {LATHE_BF16, 512, 64, 512, "m=64 n=32 groups=2 stages=2 warps=8", {64}, "values_in_keys"},
    {LATHE_F16, 512, 64, 512, "m=16 n=16 groups=4 stages=2 warps=4", {16}, "packed wide sinks"},
    {LATHE_BF16, 512, 0, 448, "m=32 n=32 groups=2 stages=3 warps=4", {24}, "packed values_in_keys"},
    {LATHE_F16, 576, 0, 512, "m=32 n=32 groups=2 stages=3 warps=4", {128}, "values_in_keys sinks"},
};

const std::vector<Row> kBackward = {
    {LATHE_BF16, 64, 0, 64, "m=64 n=64 stages=1 warps=8", {40, 64}, ""},
    {LATHE_F16, 64, 32, 64, "m=16 n=32 stages=1 warps=4", {1, 8, 16, 24, 40}, "packed sinks"},
    {LATHE_BF16, 128, 64, 128, "m=32 n=32 stages=2 warps=8", {24, 40, 64}, "packed wide ordered"},
    {LATHE_F16, 72, 8, 120, "m=64 n=32 stages=2 warps=8", {40, 64}, "sinks"},
    {LATHE_BF16, 128, 0, 256, "m=32 n=64 stages=1 warps=8", {24, 40, 64}, "packed sinks"},
    {LATHE_F16, 256, 64, 256, "m=16 n=16 stages=1 warps=4", {1, 8, 16, 40}, "packed ordered"},
    {LATHE_BF16, 512, 64, 512, "m=32 n=32 stages=1 warps=8", {24, 64}, "values_in_keys"},
    {LATHE_F16, 512, 64, 512, "m=16 n=16 stages=1 warps=4", {1, 16, 24}, "packed wide sinks"},
    {LATHE_BF16,
     192,
     0,
     128,
     "m=16 n=64 stages=1 warps=4",
     {1, 8, 16},
     "values_in_keys ordered sinks"},
};

SparseCase case_of(const Row& row) {
  SparseCase c;
  c.dtype = row.dtype, c.cu_dtype = row.has("wide") ? LATHE_I64 : LATHE_I32;
  auto& s = c.shape;
  s.head_dim = row.head_dim, s.rope_dim = row.rope_dim, s.value_dim = row.value_dim;
  s.packed = row.has("packed"), s.sinks = row.has("sinks");
  s.values_in_keys = row.has("values_in_keys"), s.group = row.groups[0];
  c.deterministic = row.has("ordered");
  return c;
}
SparseCase forward_of(const Row& row) {
  SparseCase c = case_of(row);
  c.tile = row.tile, c.splits = 1;
  return c;
}
// Reads the reference's forward, so that no kernel of the forward is compiled.
SparseCase backward_of(const Row& row) {
  SparseCase c = case_of(row);
  c.main_tile = row.tile, c.backward = c.given_forward = true;
  return c;
}

void draw_shape(const Row& row, std::mt19937& random, SparseCase* c) {
  const auto one_of = [&](const std::vector<int>& list) { return list[random() % list.size()]; };
  auto& s = c->shape;
  const int sequences = one_of({1, 2, 4});
  const int rows = one_of({1, 2, 3}), keys = one_of({0, 1, 40, 97, 200});
  for (int n = 0; n < sequences; ++n) {
    s.rows.push_back(s.packed ? one_of({0, 1, 3}) : rows);
    s.keys.push_back(s.packed ? one_of({0, 1, 31, 97}) : keys);
  }
  if (s.packed) s.padding_q = one_of({0, 2}), s.padding_k = one_of({0, 3});
  s.group = one_of(row.groups);
  s.kv_heads = s.group > 16 ? 1 : one_of({1, 2});
  s.topk = one_of({1, 31, 63, 64, 65, 95, 128, 150});
  s.absolute = random() % 4 == 0;
  s.block = s.absolute ? 1 : one_of({1, 1, 2, 16});
  if (s.block > 1) s.topk = one_of({1, 5, 9});
  s.causal = random() % 2 == 0, s.q_pos = random() % 2 == 0;
  s.lists = static_cast<Lists>(one_of({0, 0, 0, 0, 1, 2, 3, 4}));
}

Answer run_here(const SparseCase& c, const ref::SparseAttention& a) {
  return run_sparse(shared_context(), c, a);
}
void check_all(const std::vector<SparseCase>& cases) {
  under_schedules(
      cases.size(), [&](size_t i) { return run_here(cases[i], make_sparse(cases[i])); },
      [&](size_t i, const Answer& answer) {
        INFO(cases[i].text());
        check_sparse(cases[i], make_sparse(cases[i]), answer);
        check_no_spills(answer);
      },
      "sm_80");
}

// Runs of the tests below on sm_80; each gives one answer.
std::vector<Answer> on_sm80(const std::function<void(const Give&)>& work) {
  const auto answers = in_child(schedule_number(0, "sm_80"), work);
  for (const Answer& answer : answers) check_clean(answer);
  return answers;
}

}  // namespace

TEST_CASE("sparse forward: random rows and lists on every kind of tile, under every check") {
  std::mt19937 random(1);
  std::vector<SparseCase> cases;
  for (const Row& row : kForward) {
    for (int turn = 0; turn < 6; ++turn) {
      SparseCase c = forward_of(row);
      draw_shape(row, random, &c);
      c.splits = turn % 3 == 2 ? 1 + turn : 1;
      c.seed = static_cast<uint32_t>(cases.size()) + 1;
      cases.push_back(c);
    }
  }
  check_all(cases);
}

TEST_CASE("sparse backward: random rows and lists on every kind of tile, under every check") {
  std::mt19937 random(1);
  std::vector<SparseCase> cases;
  for (const Row& row : kBackward) {
    for (int turn = 0; turn < 3; ++turn) {
      SparseCase c = backward_of(row);
      draw_shape(row, random, &c);
      c.seed = static_cast<uint32_t>(cases.size()) + 1;
      cases.push_back(c);
    }
  }
  check_all(cases);
}

TEST_CASE("sparse forward: positions that are given are those that it derives, or see nothing") {
  SparseCase c = forward_of(
      {LATHE_BF16, 128, 64, 128, "m=32 n=32 groups=2 stages=3 warps=4", {24}, "packed sinks"});
  auto& s = c.shape;
  s.rows = {3, 0, 4}, s.keys = {40, 7, 90}, s.padding_q = 1;
  s.kv_heads = 2, s.topk = 130, s.causal = true, c.seed = 5;
  ref::SparseAttention a = make_sparse(c);
  const auto answers = on_sm80([&](const Give& give) {
    give([&] { return run_here(c, a); });
    s.q_pos = true;
    for (size_t n = 0; n < s.rows.size(); ++n) {
      for (int i = 0; i < s.rows[n]; ++i) a.q_pos.push_back(s.keys[n] - s.rows[n] + i);
    }
    a.q_pos.push_back(1000);  // of padding
    give([&] { return run_here(c, a); });
    a.q_pos.assign(a.q_pos.size(), -1);
    a.sinks.assign(a.sinks.size(), -ref::kInfinity);
    give([&] { return run_here(c, a); });
  });
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].outputs == answers[1].outputs);
  for (const double x : answers[2].at("lse")) CHECK(x == -ref::kInfinity);
}

TEST_CASE("sparse forward: values of ones give ones, and more keys than a tile or a list has") {
  const std::tuple<int, int, Lists> calls[] = {
      {2048, 592, Lists::all}, {2048, 1521, Lists::mixed}, {700, 700, Lists::all}};
  for (const auto& [topk, keys, lists] : calls) {
    SparseCase c;
    c.shape.group = 2, c.shape.rows = {2}, c.shape.keys = {keys};
    c.shape.topk = topk, c.shape.lists = lists, c.splits = 1, c.seed = 3;
    ref::SparseAttention a = make_sparse(c);
    const auto answers = on_sm80([&](const Give& give) {
      give([&] { return run_here(c, a); });
      for (double& x : a.v) x = std::isnan(x) ? x : 1.0;
      for (const int splits : {1, 4}) {
        c.splits = splits;
        give([&] { return run_here(c, a); });
      }
    });
    REQUIRE(answers.size() == 3);
    check_sparse(c, make_sparse(c), answers[0]);
    for (const size_t i : {1, 2}) {
      for (const double x : answers[i].at("out")) REQUIRE(x == 1);
    }
  }
}

TEST_CASE("sparse forward: more rows than a grid has in y") {
  SparseCase c;
  c.shape.rows = {66'000}, c.shape.keys = {5}, c.shape.topk = 1, c.shape.lists = Lists::nothing;
  c.splits = 1;
  ref::SparseAttention a = make_sparse(c);
  for (double& x : a.k) x = 1;
  for (double& x : a.v) x = 2;
  a.indices.back() = 4;
  const auto answers = on_sm80([&](const Give& give) { give([&] { return run_here(c, a); }); });
  const Values& out = answers.at(0).at("out");
  size_t wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) wrong += out[i] != (i / 64 == 65'999 ? 2 : 0);
  CHECK(wrong == 0);
}

TEST_CASE("sparse forward: what it reads and multiplies, at 64 heads of 512 + 64 columns") {
  constexpr int kTopk = 512;
  SparseCase c;
  auto& s = c.shape;
  s.head_dim = 512, s.rope_dim = 64, s.value_dim = 512, s.group = 64, s.values_in_keys = true;
  s.rows = {1}, s.keys = {2048}, s.topk = kTopk, c.splits = 1;
  ref::SparseAttention a = make_sparse(c);
  for (auto* x : {&a.k, &a.k_rope, &a.v}) {
    for (double& value : *x) value = std::isnan(value) ? 0.5 : value;
  }
  for (int i = 0; i < kTopk; ++i) a.indices[static_cast<size_t>(i)] = i * 1031 % 2048;
  const auto answers = on_sm80([&](const Give& give) {
    give([&] { return run_here(c, a); });
    // The same keys as blocks: the list is read once, not for every key.
    s.topk = 4, s.block = 128;
    a.topk = 4, a.block = 128, a.indices = {3, 0, 9, 15};
    give([&] { return run_here(c, a); });
    // Blocks that are not there cost nothing but their entries.
    s.topk = 64, a.topk = 64, a.indices.assign(64, -1);
    a.indices[40] = 3, a.indices[41] = 16;
    give([&] { return run_here(c, a); });
  });
  REQUIRE(answers.size() == 3);
  const Answer &single = answers[0], &blocks = answers[1];
  const auto key_bytes = [](const Answer& of) {
    return 32.0 * static_cast<double>(of.total("unique_load_sectors")) - 64 * 576 * 2 - kTopk * 4;
  };
  constexpr double kKeyBytes = kTopk * 576 * 2, kOps = 2.0 * 64 * kTopk * (576 + 512);
  CHECK(single.launches.size() == 1);
  CHECK(key_bytes(single) <= 1.1 * kKeyBytes);
  // Every key is asked for once, and q.
  const double asked = 32.0 * static_cast<double>(single.total("global_load_sectors"));
  CHECK(asked <= 1.1 * (kKeyBytes + 64 * 576 * 2));
  CHECK(static_cast<double>(single.total("tensor_ops")) <= 1.15 * kOps);
  CHECK(single.total("local_load_requests") + single.total("local_store_requests") == 0);
  CHECK(key_bytes(blocks) <= 1.1 * kKeyBytes - kTopk * 4);
  CHECK(blocks.total("global_load_requests") <= single.total("global_load_requests"));
  CHECK(static_cast<double>(blocks.total("tensor_ops")) <= 1.15 * kOps);
  CHECK(answers[2].total("tensor_ops") * 4 == blocks.total("tensor_ops"));
}

TEST_CASE("sparse backward: one key, whatever its number in the list, has all of the gradient") {
  std::vector<SparseCase> cases;
  for (const int topk : {1, 31, 64, 65}) {
    SparseCase c = backward_of(kBackward[0]);
    c.main_tile = "m=16 n=64 stages=1 warps=4";
    c.shape.rows = {2}, c.shape.keys = {9}, c.shape.group = 3, c.shape.topk = topk;
    c.shape.lists = Lists::one_key, c.seed = static_cast<uint32_t>(topk);
    cases.push_back(c);
  }
  // Delta is summed as dp is, however the tensor cores add.
  under_schedules(
      cases.size(), [&](size_t i) { return run_here(cases[i], make_sparse(cases[i])); },
      [&](size_t i, const Answer& answer) {
        INFO(cases[i].text());
        check_sparse(cases[i], make_sparse(cases[i]), answer);
        // Its value is out, so that no score has a gradient: not even what rounding would leave.
        for (const char* name : {"dq", "dk"}) {
          for (const double x : answer.at(name)) REQUIRE(x == 0);
        }
      },
      "sm_80", true);
}

// Rows that name few keys, many of them more than once, over heads of more than one tile.
SparseCase crowded(const Row& row, int topk) {
  SparseCase c = backward_of(row);
  c.shape.rows = {5, 0, 4}, c.shape.keys = {6, 3, 20};
  c.shape.kv_heads = 2, c.shape.group = 24, c.shape.topk = topk;
  return c;
}

TEST_CASE("sparse backward: what is not wanted is not touched, and changes nothing else") {
  for (const size_t row : {1, 2}) {
    SparseCase c = crowded(kBackward[row], 33);
    c.seed = 3;
    const ref::SparseAttention a = make_sparse(c);
    const char* const kNames[] = {"dq", "dk", "dv"};
    const auto wanted = [&](unsigned bits) {
      std::string names = "dsinks";
      for (size_t i = 0; i < 3; ++i) {
        if (bits >> i & 1) names += std::string(",") + kNames[i];
      }
      return names;
    };
    const auto answers = on_sm80([&](const Give& give) {
      for (unsigned bits = 7; bits > 0; --bits) {
        c.gradients = wanted(bits);
        give([&] { return run_here(c, a); });
      }
    });
    REQUIRE(answers.size() == 7);
    const Outputs& all = answers[0].outputs;
    for (unsigned bits = 6; bits > 0; --bits) {
      CAPTURE(bits);
      const Outputs& some = answers[7 - bits].outputs;
      for (const auto& [name, values] : all) {
        const std::string of = name.substr(0, 2);
        const bool is_wanted = name == "dsinks" || wanted(bits).find(of) != std::string::npos;
        REQUIRE(some.contains(name) == is_wanted);
        if (!is_wanted) continue;
        // Sums of no order differ in their last bits.
        if (of == "dq") CHECK(some.at(name) == values);
        check_near(some.at(name), values, 0.02, 0, name);
      }
    }
  }
}

// Rows come in chunks of at most 1024, each with its own part of the sums.
TEST_CASE("sparse backward: in order, chunks of rows give the bits of one chunk") {
  SparseCase c = backward_of({LATHE_BF16, 64, 0, 64, "m=16 n=16 stages=1 warps=4", {2}, "ordered"});
  c.shape.rows = {1000}, c.shape.keys = {60}, c.shape.topk = 5;
  const ref::SparseAttention one = make_sparse(c);
  // The same rows, and 100 behind them that name nothing: two chunks of 550.
  SparseCase more = c;
  more.shape.rows = {1100};
  ref::SparseAttention two = make_sparse(more);
  const auto keep = [](auto* to, const auto& from) {
    std::copy(from.begin(), from.end(), to->begin());
  };
  keep(&two.q, one.q), keep(&two.dout, one.dout), two.k = one.k, two.v = one.v;
  std::fill(two.indices.begin(), two.indices.end(), -1);
  keep(&two.indices, one.indices);
  const auto answers = on_sm80([&](const Give& give) {
    give([&] { return run_here(c, one); });
    give([&] { return run_here(more, two); });
  });
  REQUIRE(answers.size() == 2);
  check_sparse(c, one, answers[0]);
  check_sparse(more, two, answers[1]);
  // Each chunk has four launches: main, ranges, fill, gather.
  CHECK(answers[1].launches.size() == answers[0].launches.size() + 4);
  for (const char* name : {"dk", "dv"}) CHECK(answers[1].at(name) == answers[0].at(name));
}

TEST_CASE("sparse backward: products, reads and additions of the usual model") {
  struct Case {
    const char *arch, *tile;
    uint64_t tiles;  // of the heads
  };
  for (const Case& each : {Case{"sm_80", "m=32 n=32 stages=1 warps=8", 2},
                           Case{"sm_90a", "m=64 n=32 stages=1 warps=8", 1}}) {
    SparseCase c = backward_of({LATHE_BF16, 512, 64, 512, each.tile, {64}, "values_in_keys"});
    c.shape.rows = {1}, c.shape.keys = {600}, c.shape.topk = 512, c.shape.lists = Lists::all;
    c.seed = 11;
    const ref::SparseAttention a = make_sparse(c);
    const auto answers = in_child(schedule_number(1, each.arch),
                                  [&](const Give& give) { give([&] { return run_here(c, a); }); });
    CAPTURE(each.arch);
    REQUIRE(answers.size() == 1);
    check_sparse(c, a, answers[0]);
    REQUIRE(answers[0].launches.size() == 3);
    const auto& main = answers[0].launches[1];
    const auto count = [&](const char* name) { return main.at(name).get<uint64_t>(); };
    const uint64_t useful = 2ull * 64 * 512 * (3 * 576 + 2 * 512);
    CHECK(static_cast<double>(count("tensor_ops")) <= static_cast<double>(useful) * 1.15);
    // Each tile of heads adds to each key once, by whole sectors.
    CHECK(count("global_atomic_bytes") == each.tiles * 512 * 576 * 4);
    CHECK(count("global_atomic_sectors") == count("global_atomic_bytes") / 32);
    // Keys once; q, dout, the list, lse and delta of the row.
    CHECK(static_cast<double>(count("unique_load_sectors") * 32) <=
          1.1 * (512 * 576 * 2) + 64 * (576 + 512) * 2 + 4096);
  }
}
