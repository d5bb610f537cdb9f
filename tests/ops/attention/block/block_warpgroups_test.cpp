// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the steps of ring attention by warpgroups, under several schedules: random
// ranges at every width that they have a tile for, with rows and keys of no range that are NaN.
#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/block/block_case.h"

namespace {

using namespace apitest;

const bool kFamily = choose_family("sm90");

const std::vector<TileRow> kForward = tile_rows(R"(
    bf16 64 64 | ranges
    f16 64 64 | ranges local alibi
    f16 64 64 | ranges local softcap
    bf16 96 96 | ranges local
    bf16 128 128 | ranges
    f16 128 128 | ranges local
    bf16 128 128 | ranges local softcap alibi
    bf16 192 128 | ranges local
    f16 192 192 | ranges local
    bf16 256 256 | ranges local
    f16 64 256 | ranges local
    bf16 128 64 | ranges local
    f16 64 128 | ranges local
    bf16 64 64 | ranges local mask
    f16 128 128 | ranges score mask tiles
)");

const std::vector<TileRow> kBackward = tile_rows(R"(
    bf16 64 64 | ranges
    f16 64 64 | ranges local
    bf16 64 64 | ranges local softcap alibi
    f16 128 128 | ranges
    bf16 128 128 | ranges local
    f16 128 128 | ranges local softcap
    bf16 128 128 | ranges local alibi
)");

// Where Hopper's kernels are the rules' choice.
const std::vector<TileRow> kForwardChosen = tile_rows(R"(
    bf16 128 128 kernel=attention_block m=64 n=64 stages=2 warps=4 | ranges local
)");
const std::vector<TileRow> kBackwardChosen = tile_rows(R"(
    f16 64 64 kernel=attention_block_backward m=64 n=64 stages=1 width_warps=1 warps=4 | ranges local
)");

struct Case {
  TileRow row;
  BlockInputs in;
  bool first = false;   // of a forward
  std::string written;  // of a backward: block_gradients_call
  int64_t sm_margin = 0;
  std::string text;
};

Answer run_forward(const Case& c) {
  return execute(shared_context(), block_call(c.row, c.in, c.first, c.sm_margin));
}

Answer run_backward(const Case& c) {
  return execute(shared_context(), block_gradients_call(c.row, c.in, c.written, c.sm_margin));
}

std::vector<Case> random_cases(const std::vector<TileRow>& rows, uint32_t seed) {
  std::vector<Case> cases;
  for (const TileRow& row : rows) {
    for (int turn = 0; turn < 4; ++turn, ++seed) {
      Case c{row, make_block(row, seed, turn == 3 ? 3 : 1)};
      c.first = turn % 3 == 0;
      c.written = turn == 1 ? "first" : turn == 2 ? "first_keys" : "";
      c.text = std::to_string(row.width) + " " + std::to_string(row.value_width) + " " + row.flags +
               " seed " + std::to_string(seed);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

void check_forward(const Case& c, const Answer& answer) {
  INFO(c.text);
  check_block(c.row, c.in, c.first, answer);
  if (!answer.error.empty()) return;
  // A score_mod may take more registers than there are: then the portable kernel has the step.
  if (!c.row.has("score")) CHECK(!answer.spec("attention_block_warpgroups").empty());
  check_no_spills(answer);
}

void check_backward(const Case& c, const Answer& answer) {
  INFO(c.text);
  check_block_gradients(c.row, c.in, c.written, answer);
  if (!answer.error.empty()) return;
  CHECK(!answer.spec("attention_block_backward_warpgroups").empty());
  check_no_spills(answer);
}

std::vector<Answer> on_hopper(uint64_t schedule, const std::function<void(const Give&)>& work) {
  return in_child(schedule_number(schedule, "sm_90a"), work);
}

void on_hopper_each(const std::vector<Case>& cases, Answer (*run)(const Case&),
                    void (*check)(const Case&, const Answer&)) {
  const auto answers = on_hopper(3, [&](const Give& give) {
    for (const Case& c : cases) give([&] { return run(c); });
  });
  REQUIRE(answers.size() == cases.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    INFO(cases[i].text);
    check(cases[i], answers[i]);
  }
}

}  // namespace

TEST_CASE("block step by warpgroups: random ranges at every width") {
  REQUIRE(kFamily);
  const auto cases = random_cases(kForward, 1);
  under_schedules(
      cases.size(), [&](size_t i) { return run_forward(cases[i]); },
      [&](size_t i, const Answer& answer) { check_forward(cases[i], answer); }, "sm_90a");
}

TEST_CASE("block step by warpgroups: gradients of random ranges, added to sums and written") {
  const auto cases = random_cases(kBackward, 500);
  std::vector<Answer> found(cases.size());
  under_schedules(
      cases.size(), [&](size_t i) { return run_backward(cases[i]); },
      [&](size_t i, const Answer& answer) {
        check_backward(cases[i], answer);
        found[i] = answer;
      },
      "sm_90a");
  // The first of each row once more, under another schedule: dk and dv have one writer.
  const auto again = on_hopper(7, [&](const Give& give) {
    for (size_t i = 0; i < cases.size(); i += 4) give([&] { return run_backward(cases[i]); });
  });
  REQUIRE(again.size() * 4 == cases.size());
  for (size_t i = 0; i < again.size(); ++i) {
    INFO(cases[4 * i].text);
    for (const char* name : {"dk", "dv"}) CHECK((again[i].at(name) == found[4 * i].at(name)));
  }
}

TEST_CASE("block step by warpgroups: a choice of the portable kernels is taken") {
  const auto forward = random_cases(kForwardChosen, 900),
             backward = random_cases(kBackwardChosen, 950);
  on_hopper_each(forward, run_forward, [](const Case& c, const Answer& answer) {
    check_block(c.row, c.in, c.first, answer);
    CHECK(!answer.spec("attention_block").empty());
    CHECK(answer.spec("attention_block_warpgroups").empty());
  });
  on_hopper_each(backward, run_backward, [](const Case& c, const Answer& answer) {
    check_block_gradients(c.row, c.in, c.written, answer);
    CHECK(!answer.spec("attention_block_backward").empty());
    CHECK(answer.spec("attention_block_backward_warpgroups").empty());
  });
}

// Tiles of keys that several ranges share, beside keys that are NaN: dq of each is made of its own.
TEST_CASE("block step by warpgroups: gradients of many short ranges, heads of a group") {
  for (const size_t which : {1, 4}) {
    const TileRow& row = kBackward[which];
    ref::AttentionBlock shape;
    shape.rows = 300, shape.keys = 400, shape.heads = 6, shape.kv_heads = 2;
    shape.head_dim = row.width, shape.value_dim = row.value_width;
    const BlockStep step = {.ranges = {{0, 100, 0, 60, 0},
                                       {0, 100, 61, 100, 20},
                                       {0, 100, 170, 390, 5},
                                       {100, 130, 7, 100, 20},
                                       {130, 200, 100, 130, 0},
                                       {205, 300, 7, 100, 60},
                                       {205, 300, 130, 170, 40}},
                            .window_left = 90,
                            .window_right = 10};
    for (const char* written : {"", "first"}) {
      Case c{row, make_block(row, 17, shape, &step, 2)};
      c.written = written, c.text = row.flags;
      const auto answers =
          on_hopper(which, [&](const Give& give) { give([&] { return run_backward(c); }); });
      check_backward(c, answers.at(0));
    }
  }
}

// A block of the grid gets several tiles, some of which see nothing: the ring's phases and its
// messages go on from tile to tile.
TEST_CASE("block step by warpgroups: many tiles a block give the same bits, whatever the margin") {
  const TileRow row = kForward[5];
  ref::AttentionBlock shape;
  shape.rows = 520, shape.keys = 900, shape.heads = 6, shape.kv_heads = 2;
  shape.head_dim = row.width, shape.value_dim = row.value_width;
  const BlockStep step = {.ranges = {{0, 100, 0, 250, 150},
                                     {0, 100, 300, 310, 0},
                                     {100, 130, 7, 390, 20},
                                     {390, 520, 7, 700, 500},
                                     {391, 520, 701, 900, 400}},
                          .window_left = 400,
                          .window_right = 0};
  for (const bool first : {false, true}) {
    Case c{row, make_block(row, 91, shape, &step, 2), first};
    const auto answers = on_hopper(first ? 1 : 2, [&](const Give& give) {
      for (const int64_t margin : {0, 100, 129, 131}) {
        c.sm_margin = margin;
        give([&] { return run_forward(c); });
      }
    });
    REQUIRE(answers.size() == 4);
    for (const Answer& answer : answers) {
      check_forward(c, answer);
      for (const char* name : {"out", "lse"}) {
        CHECK(same_bits(answer.at(name), answers[0].at(name)));
      }
    }
  }
}

TEST_CASE(
    "block step by warpgroups: ranges that nobody has checked read and write nothing beyond") {
  const TileRow row = {LATHE_BF16, 64, 64, "", "ranges local"};
  const auto answers = on_hopper(3, [&](const Give& give) {
    for (uint32_t seed = 1; seed < 9; ++seed) {
      std::mt19937 random(seed);
      BlockInputs in = make_block(row, seed);
      for (int i = 0; i < 12; ++i) {
        const auto word = [&]() -> int64_t {
          const int64_t wild[] = {0, -1, -70, 64, 100, 1000, 0x7fffffff, -int64_t{0x80000000}};
          return wild[random() % 8];
        };
        in.step->ranges.push_back({word(), word(), word(), word(), word(), word(), word(), word()});
      }
      std::shuffle(in.step->ranges.begin(), in.step->ranges.end(), random);
      const Case c{row, in, seed % 2 == 0};
      give([&] { return run_forward(c); });
      give([&] { return run_backward(c); });
    }
  });
  for (const Answer& answer : answers) check_clean(answer);  // it is all that is asked
}
