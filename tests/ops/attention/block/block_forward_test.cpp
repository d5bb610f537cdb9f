// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover steps of ring attention under several schedules: random ranges and positions on
// configurations that cover widths, tiles, types and flags of the kernels of every family, with
// rows and keys of no range that are NaN.
#include "tests/ops/attention/block/block_run.h"

using namespace apitest;

namespace {

// Portable kernels have the tiles; by warpgroups there is one for a width.
const std::vector<TileRow> kForward = tile_rows(R"(
    bf16 64 64 m=128 n=64 stages=2 warps=4 | ranges
    f16 64 64 m=128 n=64 stages=2 warps=4 | ranges local alibi
    bf16 96 96 m=128 n=64 stages=2 warps=4 | positions local
    f16 128 128 m=128 n=64 stages=2 warps=4 | ranges local
    bf16 128 128 m=128 n=64 stages=2 warps=8 | ranges local softcap alibi
    bf16 128 128 m=128 n=64 stages=2 warps=4 | positions local
    f16 128 128 m=128 n=64 stages=2 warps=8 | positions local softcap alibi
    f16 128 64 m=64 n=64 stages=1 warps=4 | positions alibi
    f16 192 128 m=128 n=64 stages=1 warps=8 | ranges local
    bf16 256 256 m=128 n=64 stages=1 warps=8 | positions local
    f32 64 64 m=64 n=32 stages=1 warps=4 | ranges local alibi
    f32 64 64 m=64 n=32 stages=1 warps=4 | positions local softcap
    bf16 64 64 m=64 n=64 stages=2 warps=4 | ranges local mask
    f16 64 64 m=64 n=64 stages=2 warps=4 | ranges score mask tiles
    f16 128 64 m=64 n=64 stages=1 warps=4 | positions local score mask tiles
    f32 64 64 m=64 n=32 stages=1 warps=4 | ranges score mask
    f16 64 64 | ranges local softcap
    bf16 128 128 | ranges
    bf16 192 128 | ranges local
    f16 192 192 | ranges local
    bf16 256 256 | ranges local
    f16 64 256 | ranges local
    f16 64 128 | ranges local
    f16 128 128 | ranges score mask tiles
)");

// Where Hopper's kernels are the rules' choice.
const std::vector<TileRow> kForwardChosen = tile_rows(R"(
    bf16 128 128 kernel=attention_block m=64 n=64 stages=2 warps=4 | ranges local
)");

void check_forward(const BlockCase& c, const Answer& answer) {
  INFO(c.text);
  check_block(c.row, c.in, c.first, answer);
  if (!answer.error.empty()) return;
  check_own(c.row, answer, "attention_block", own_forward(c.row));
}

}  // namespace

EVERY_FAMILY_CASE("attention block: random ranges and positions on every configuration") {
  const auto cases = random_cases(rows_of(kForward), 1);
  under_schedules(
      cases.size(), [&](size_t i) { return run_forward(cases[i]); },
      [&](size_t i, const Answer& answer) { check_forward(cases[i], answer); }, arch());
}

EVERY_FAMILY_CASE("attention block: ranges that nobody has checked read and write nothing beyond") {
  const TileRow row = {LATHE_BF16, 64, 64, "", "ranges local"};
  under(3, [&](const Give& give) {
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
      const BlockCase c{row, in, seed % 2 == 0};
      give([&] { return run_forward(c); });  // no finding is all that is asked
      give([&] { return run_backward(c); });
    }
  });
}

FAMILY_CASE("portable", "attention block: tiles that take turns give the same bits") {
  for (const size_t which : {6, 13}) {
    ref::AttentionBlock shape;
    shape.rows = 260, shape.keys = 203, shape.heads = 6, shape.kv_heads = 2;
    shape.head_dim = kForward[which].width, shape.value_dim = kForward[which].value_width;
    shape.softcap = kForward[which].has("softcap") ? 3 : 0;
    for (const bool first : {false, true}) {
      BlockCase c{kForward[which], make_block(kForward[which], 91, shape, nullptr, 2), first};
      const auto answers = under(1, [&](const Give& give) {
        give([&] { return run_forward(c); });
        c.sm_margin = kMargin;
        give([&] { return run_forward(c); });
      });
      REQUIRE(answers.size() == 2);
      check_block(c.row, c.in, first, answers[0]);
      for (const char* name : {"out", "lse"}) {
        CHECK(same_bits(answers[1].at(name), answers[0].at(name)));
      }
    }
  }
}

EVERY_FAMILY_CASE("attention block: more blocks than lanes, of which few are seen") {
  ref::AttentionBlock shape;
  shape.head_dim = shape.value_dim = 64, shape.rows = 70, shape.keys = 2500;
  for (const char* flags : {"positions local", "ranges local"}) {
    const TileRow row = row_of({LATHE_BF16, 64, 64, "m=64 n=64 stages=2 warps=4", flags});
    BlockStep step = {.window_left = 40, .window_right = 0};
    if (row.has("ranges")) {
      for (int64_t i = 0; i < 40; ++i) {  // two of them in reach of the rows
        step.ranges.push_back({0, 70, i * 60, i * 60 + 60, 2210 - i * 60});
      }
    } else {
      for (int64_t i = 0; i < 70; ++i) step.q_positions.push_back(i < 35 ? 100 + i : 2300 + i);
      for (int64_t j = 0; j < 2500; ++j) step.k_positions.push_back(j);
    }
    const BlockCase c{row, make_block(row, 31, shape, &step), true};
    const auto answers = under(4, [&](const Give& give) { give([&] { return run_forward(c); }); });
    check_block(c.row, c.in, true, answers.at(0));
  }
}

FAMILY_CASE("sm90", "attention block: a choice of the portable kernels is taken") {
  check_each(random_cases(kForwardChosen, 900), run_forward,
             [](const BlockCase& c, const Answer& answer) {
               check_block(c.row, c.in, c.first, answer);
               CHECK(!answer.spec("attention_block").empty());
               CHECK(answer.spec("attention_block_warpgroups").empty());
             });
}

// A block of the grid gets several tiles, some of which see nothing: the ring's phases and its

// messages go on from tile to tile.

EVERY_FAMILY_CASE("attention block: many tiles a block give the same bits, whatever the margin") {
  const TileRow row = {LATHE_F16, 128, 128, "", "ranges local"};
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
    BlockCase c{row, make_block(row, 91, shape, &step, 2), first};
    const auto answers = under(first ? 1 : 2, [&](const Give& give) {
      for (const int64_t left : {1000, 32, 3, 1}) {  // of the multiprocessors
        c.sm_margin = std::max<int64_t>((in_family("sm90") ? 132 : 108) - left, 0);
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
