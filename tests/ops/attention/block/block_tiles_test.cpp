// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover steps of ring attention, forward and backward, on sm_80 and under several
// schedules: random ranges and positions on a set of configurations that covers widths, tiles,
// types and flags.
#include "tests/harness/check.h"
#include "tests/harness/repeat.h"
#include "tests/ops/attention/block/block_case.h"

namespace {

using namespace apitest;

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
)");
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
)");

// One step: what it goes on from, and how many multiprocessors are left to it.
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
      c.text = row.flags + " " + row.tile + " seed " + std::to_string(seed);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

std::vector<Answer> on_sm80(uint64_t schedule, const std::function<void(const Give&)>& work) {
  const auto answers = in_child(schedule_number(schedule, "sm_80"), work);
  for (const Answer& answer : answers) check_clean(answer);
  return answers;
}

// All but one of the multiprocessors of sm_80: tiles take turns.
constexpr int64_t kMargin = 107;

}  // namespace

TEST_CASE("attention block: random ranges and positions on every configuration") {
  const auto cases = random_cases(kForward, 1);
  under_schedules(
      cases.size(), [&](size_t i) { return run_forward(cases[i]); },
      [&](size_t i, const Answer& answer) {
        const Case& c = cases[i];
        INFO(c.text);
        check_block(c.row, c.in, c.first, answer);
        if (std::max(c.row.width, c.row.value_width) <= 128) check_no_spills(answer);
      },
      "sm_80");
}

TEST_CASE("attention block backward: random ranges and positions, added to sums and written") {
  const auto cases = random_cases(kBackward, 500);
  std::vector<Answer> found(cases.size());
  under_schedules(
      cases.size(), [&](size_t i) { return run_backward(cases[i]); },
      [&](size_t i, const Answer& answer) {
        const Case& c = cases[i];
        INFO(c.text);
        check_block_gradients(c.row, c.in, c.written, answer);
        if (std::max(c.row.width, c.row.value_width) <= 128) check_no_spills(answer);
        found[i] = answer;
      },
      "sm_80");
  // The first of each row once more, under another schedule.
  const auto again = on_sm80(7, [&](const Give& give) {
    for (size_t i = 0; i < cases.size(); i += 4) give([&] { return run_backward(cases[i]); });
  });
  REQUIRE(again.size() * 4 == cases.size());
  for (size_t i = 0; i < again.size(); ++i) {
    const Case& c = cases[4 * i];
    INFO(c.text);
    for (const char* name : {"dq", "dk", "dv"}) {
      if (std::string(name) == "dq" && !c.row.has("ordered")) continue;
      CHECK((again[i].at(name) == found[4 * i].at(name)));
    }
  }
}

TEST_CASE("attention block: ranges that nobody has checked read and write nothing beyond") {
  const TileRow row = {LATHE_BF16, 64, 64, "", "ranges local"};
  on_sm80(3, [&](const Give& give) {
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
      give([&] { return run_forward(c); });  // no finding is all that is asked
      give([&] { return run_backward(c); });
    }
  });
}

TEST_CASE("attention block: tiles that take turns give the same bits") {
  for (const size_t which : {6, 13}) {
    ref::AttentionBlock shape;
    shape.rows = 260, shape.keys = 203, shape.heads = 6, shape.kv_heads = 2;
    shape.head_dim = kForward[which].width, shape.value_dim = kForward[which].value_width;
    shape.softcap = kForward[which].has("softcap") ? 3 : 0;
    for (const bool first : {false, true}) {
      Case c{kForward[which], make_block(kForward[which], 91, shape, nullptr, 2), first};
      const auto answers = on_sm80(1, [&](const Give& give) {
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
  for (const size_t which : {3, 11}) {
    ref::AttentionBlock shape;
    shape.rows = 150, shape.keys = 320, shape.heads = 6, shape.kv_heads = 2;
    shape.head_dim = kBackward[which].width, shape.value_dim = kBackward[which].value_width;
    Case c{kBackward[which], make_block(kBackward[which], 801, shape, nullptr)};
    const auto answers = on_sm80(1, [&](const Give& give) {
      give([&] { return run_backward(c); });
      c.sm_margin = kMargin;
      give([&] { return run_backward(c); });
    });
    REQUIRE(answers.size() == 2);
    check_block_gradients(c.row, c.in, "", answers[0]);
    CHECK(answers[0].outputs == answers[1].outputs);  // both are ordered
  }
}

// So many rows of a batch that the blocks of one walk several tiles of keys, each with its sums.
TEST_CASE("attention block backward: fewer sums than tiles of keys, in order") {
  const TileRow row = {LATHE_F16, 64, 64, "m=64 n=64 stages=1 width_warps=1 warps=4",
                       "ranges local ordered"};
  ref::AttentionBlock shape;
  shape.rows = 20, shape.keys = 300, shape.heads = 4, shape.kv_heads = 2;
  shape.head_dim = shape.value_dim = 64;
  const BlockStep step = {.ranges = {{0, 20, 0, 300, 280}}, .window_left = 250};
  const Case c{row, make_block(row, 5, shape, &step, 32)};
  const auto answers = on_sm80(2, [&](const Give& give) { give([&] { return run_backward(c); }); });
  check_block_gradients(c.row, c.in, "", answers.at(0));
}

TEST_CASE("attention block: more blocks than lanes, of which few are seen") {
  ref::AttentionBlock shape;
  shape.head_dim = shape.value_dim = 64, shape.rows = 70, shape.keys = 2500;
  for (const char* flags : {"positions local", "ranges local"}) {
    const TileRow row = {LATHE_BF16, 64, 64, "m=64 n=64 stages=2 warps=4", flags};
    BlockStep step = {.window_left = 40, .window_right = 0};
    if (row.has("ranges")) {
      for (int64_t i = 0; i < 40; ++i) {  // two of them in reach of the rows
        step.ranges.push_back({0, 70, i * 60, i * 60 + 60, 2210 - i * 60});
      }
    } else {
      for (int64_t i = 0; i < 70; ++i) step.q_positions.push_back(i < 35 ? 100 + i : 2300 + i);
      for (int64_t j = 0; j < 2500; ++j) step.k_positions.push_back(j);
    }
    const Case c{row, make_block(row, 31, shape, &step), true};
    const auto answers =
        on_sm80(4, [&](const Give& give) { give([&] { return run_forward(c); }); });
    check_block(c.row, c.in, true, answers.at(0));
  }
  const TileRow row = {LATHE_BF16, 64, 64, "m=64 n=64 stages=1 width_warps=1 warps=4",
                       "positions local"};
  BlockStep step = {.window_left = 40, .window_right = 0};
  for (int64_t i = 0; i < 2500; ++i) step.q_positions.push_back(i);
  for (int64_t j = 0; j < 70; ++j) step.k_positions.push_back(j < 35 ? 100 + j : 2300 + j);
  std::swap(shape.rows, shape.keys);
  const Case c{row, make_block(row, 32, shape, &step)};
  const auto answers = on_sm80(4, [&](const Give& give) { give([&] { return run_backward(c); }); });
  check_block_gradients(c.row, c.in, "", answers.at(0));
}
