// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the backward of sparse_flash_attention with tiles that are not the default:
// random rows and lists, what must hold whatever the numbers are, and what the kernels read,
// multiply and add.
#include "tests/ops/sparse/tiles.h"

using namespace apitest;

namespace {

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

}  // namespace

TEST_CASE("sparse backward: random rows and lists on every kind of tile, under every check") {
  check_all(random_cases(kBackward, 3, backward_of));
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
