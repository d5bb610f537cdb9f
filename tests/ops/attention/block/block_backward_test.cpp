// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the gradients of steps of ring attention as block_forward_test.cpp covers the
// steps: added to sums and written, in a fixed order and in none.
#include "tests/ops/attention/block/block_run.h"

using namespace apitest;

namespace {

const std::vector<TileRow> kBackward = tile_rows(R"(
    bf16 64 64 m=64 n=128 stages=2 width_warps=1 warps=8 | ranges local
    f16 64 64 m=64 n=128 stages=2 width_warps=1 warps=8 | positions local ordered
    bf16 96 96 m=64 n=128 stages=1 width_warps=1 warps=8 | ranges local alibi
    f16 128 128 m=64 n=128 stages=1 width_warps=1 warps=8 | ranges local ordered
    bf16 128 128 m=64 n=64 stages=1 width_warps=1 warps=4 | ranges local softcap alibi
    bf16 128 128 m=64 n=64 stages=1 width_warps=1 warps=4 | positions local softcap alibi
    f16 128 64 m=64 n=64 stages=1 width_warps=1 warps=4 | positions alibi
    bf16 192 128 m=64 n=64 stages=1 width_warps=2 warps=8 | ranges local
    f16 256 256 m=32 n=64 stages=1 width_warps=2 warps=8 | positions local
    f32 64 64 m=32 n=32 stages=1 width_warps=2 warps=4 | ranges local softcap
    f32 64 64 m=32 n=32 stages=1 width_warps=2 warps=4 | positions local
    f16 64 64 m=32 n=64 stages=1 width_warps=2 warps=8 | ranges score mask tiles ordered
    bf16 128 128 m=64 n=128 stages=1 width_warps=1 warps=8 | ranges local alibi score
    f16 128 64 m=64 n=64 stages=1 width_warps=1 warps=4 | positions local score mask tiles
    f32 64 64 m=32 n=32 stages=1 width_warps=2 warps=4 | ranges score mask
    bf16 64 64 | ranges
    bf16 64 64 | ranges local softcap alibi
    f16 128 128 | ranges
    f16 128 128 | ranges local softcap
    bf16 128 128 | ranges local alibi
)");

// Where Hopper's kernels are the rules' choice.
const std::vector<TileRow> kBackwardChosen = tile_rows(R"(
    f16 64 64 kernel=attention_block_backward m=64 n=64 stages=1 width_warps=1 warps=4 | ranges local
)");

void check_backward(const BlockCase& c, const Answer& answer) {
  INFO(c.text);
  check_block_gradients(c.row, c.in, c.written, answer);
  if (!answer.error.empty()) return;
  check_own(c.row, answer, "attention_block_backward", own_backward(c.row));
}

}  // namespace

EVERY_FAMILY_CASE(
    "attention block backward: random ranges and positions, added to sums and written") {
  const auto cases = random_cases(rows_of(kBackward), 500);
  std::vector<Answer> found(cases.size());
  under_schedules(
      cases.size(), [&](size_t i) { return run_backward(cases[i]); },
      [&](size_t i, const Answer& answer) {
        check_backward(cases[i], answer);
        found[i] = answer;
      },
      arch());
  // The first of each row once more, under another schedule: dk and dv have one writer.
  const auto again = under(7, [&](const Give& give) {
    for (size_t i = 0; i < cases.size(); i += 4) give([&] { return run_backward(cases[i]); });
  });
  REQUIRE(again.size() * 4 == cases.size());
  for (size_t i = 0; i < again.size(); ++i) {
    const BlockCase& c = cases[4 * i];
    INFO(c.text);
    for (const char* name : {"dq", "dk", "dv"}) {
      if (std::string(name) == "dq" && !c.row.has("ordered")) continue;
      CHECK((again[i].at(name) == found[4 * i].at(name)));
    }
  }
}

// So many rows of a batch that the blocks of one walk several tiles of keys, each with its sums.
FAMILY_CASE("portable", "attention block backward: fewer sums than tiles of keys, in order") {
  const TileRow row = {LATHE_F16, 64, 64, "m=64 n=64 stages=1 width_warps=1 warps=4",
                       "ranges local ordered"};
  ref::AttentionBlock shape;
  shape.rows = 20, shape.keys = 300, shape.heads = 4, shape.kv_heads = 2;
  shape.head_dim = shape.value_dim = 64;
  const BlockStep step = {.ranges = {{0, 20, 0, 300, 280}}, .window_left = 250};
  const BlockCase c{row, make_block(row, 5, shape, &step, 32)};
  const auto answers = under(2, [&](const Give& give) { give([&] { return run_backward(c); }); });
  check_block_gradients(c.row, c.in, "", answers.at(0));
}

// Tiles of keys that several ranges share, beside keys that are NaN: dq of each is made of its own.
EVERY_FAMILY_CASE("attention block backward: many short ranges, heads of a group") {
  for (const TileRow& row : {TileRow{LATHE_F16, 64, 64, "", "ranges local"},
                             TileRow{LATHE_BF16, 128, 128, "", "ranges local"}}) {
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
      BlockCase c{row, make_block(row, 17, shape, &step, 2)};
      c.written = written, c.text = row.flags;
      const auto answers =
          under(row.width / 64, [&](const Give& give) { give([&] { return run_backward(c); }); });
      check_backward(c, answers.at(0));
    }
  }
}

FAMILY_CASE("portable", "attention block backward: tiles that take turns give the same bits") {
  for (const size_t which : {3, 11}) {
    ref::AttentionBlock shape;
    shape.rows = 150, shape.keys = 320, shape.heads = 6, shape.kv_heads = 2;
    shape.head_dim = kBackward[which].width, shape.value_dim = kBackward[which].value_width;
    BlockCase c{kBackward[which], make_block(kBackward[which], 801, shape, nullptr)};
    const auto answers = under(1, [&](const Give& give) {
      give([&] { return run_backward(c); });
      c.sm_margin = kMargin;
      give([&] { return run_backward(c); });
    });
    REQUIRE(answers.size() == 2);
    check_block_gradients(c.row, c.in, "", answers[0]);
    CHECK(answers[0].outputs == answers[1].outputs);  // both are ordered
  }
}

EVERY_FAMILY_CASE("attention block backward: more blocks than lanes, of which few are seen") {
  ref::AttentionBlock shape;
  shape.head_dim = shape.value_dim = 64, shape.rows = 2500, shape.keys = 70;
  const TileRow row =
      row_of({LATHE_BF16, 64, 64, "m=64 n=64 stages=1 width_warps=1 warps=4", "positions local"});
  BlockStep step = {.window_left = 40, .window_right = 0};
  for (int64_t i = 0; i < 2500; ++i) step.q_positions.push_back(i);
  for (int64_t j = 0; j < 70; ++j) step.k_positions.push_back(j < 35 ? 100 + j : 2300 + j);
  const BlockCase c{row, make_block(row, 32, shape, &step)};
  const auto answers = under(4, [&](const Give& give) { give([&] { return run_backward(c); }); });
  check_block_gradients(c.row, c.in, "", answers.at(0));
}

FAMILY_CASE("sm90", "attention block backward: a choice of the portable kernels is taken") {
  check_each(random_cases(kBackwardChosen, 950), run_backward,
             [](const BlockCase& c, const Answer& answer) {
               check_block_gradients(c.row, c.in, c.written, answer);
               CHECK(!answer.spec("attention_block_backward").empty());
               CHECK(answer.spec("attention_block_backward_warpgroups").empty());
             });
}
