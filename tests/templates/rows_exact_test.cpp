// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Exact sums on the simulator, against integers of 128 bits: every size of terms, terms that
// cancel, subnormal and infinite ones, in any order and in any shares.
#include <cmath>
#include <limits>

#include "ops/exact_sums.h"
#include "templates/params/exact_sums.h"
#include "tests/templates/rows_case.h"

using namespace rows;

namespace {

// Sums columns of terms [rows, columns], in shares of rows whose words are added here, as ranks do.
std::vector<float> sums_of(const lathe::Compiler& compiler, const std::vector<float>& terms,
                           int columns, int shares, uint32_t seed) {
  const KernelSpec add = lathe::exact_sums_spec(), round = lathe::exact_round_spec();
  const int rows = static_cast<int>(terms.size()) / columns;
  std::vector<int64_t> words(static_cast<size_t>(lathe::kExactWords * columns));
  for (int share = 0; share < shares; ++share) {
    const int first = rows * share / shares, last = rows * (share + 1) / shares;
    Runner runner(compiler, add, seed);
    lathe::ExactSumsParams p = {};
    const std::vector<float> own(terms.begin() + first * columns, terms.begin() + last * columns);
    p.terms = at(runner.device().upload(own));
    p.sums = at(runner.device().buffer(words.size() * 8));
    p.row_stride = columns, p.rows = last - first, p.columns = columns;
    runner.run((columns + 31) / 32, p);
    const auto found = runner.device().download<int64_t>(address(p.sums), words.size());
    for (size_t i = 0; i < words.size(); ++i) words[i] += found[i];
  }
  Runner runner(compiler, round, seed);
  lathe::ExactRoundParams p = {};
  p.sums = at(runner.device().upload(words));
  p.out = at(runner.device().buffer(static_cast<size_t>(columns) * 4));
  p.columns = columns;
  runner.run((columns + 255) / 256, p);
  return runner.device().download<float>(address(p.out), static_cast<size_t>(columns));
}

// The sum of a column of terms that are multiples of 2^unit, by integers.
float by_integers(const std::vector<float>& terms, int columns, int column, int unit) {
  __int128 sum = 0;
  for (size_t i = static_cast<size_t>(column); i < terms.size(); i += columns) {
    int exponent = 0;
    const auto fraction = static_cast<int64_t>(std::frexp(terms[i], &exponent) * 0x1p24f);
    const int shift = exponent - 24 - unit;
    sum += shift >= 0 ? static_cast<__int128>(fraction) * (static_cast<__int128>(1) << shift)
                      : fraction >> -shift;
  }
  return std::ldexp(static_cast<float>(sum), unit);
}

}  // namespace

TEST_CASE("exact sums: terms of 70 binary orders, and all shares of them") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  std::mt19937 random(7);
  constexpr int kColumns = 45;
  for (const int unit : {-149, -90, -40, 33}) {
    std::vector<float> terms;
    for (int i = 0; i < 30 * kColumns; ++i) {
      const auto fraction = static_cast<float>(static_cast<int32_t>(random()) >> 8);
      terms.push_back(std::ldexp(fraction, unit + static_cast<int>(random() % 70)));
    }
    for (int i = 0; i < 10 * kColumns; ++i) {  // and what they leave when they cancel
      terms.push_back(-terms[i]);
    }
    std::vector<float> expected;
    for (int c = 0; c < kColumns; ++c) expected.push_back(by_integers(terms, kColumns, c, unit));
    for (const int shares : {1, 2, 7}) {
      CHECK(sums_of(*nvrtc, terms, kColumns, shares, static_cast<uint32_t>(shares)) == expected);
    }
  }
}

TEST_CASE("exact sums: ties, signs, ends of the range, and what is not finite") {
  const auto nvrtc = compiler();
  if (!nvrtc) return;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  struct Column {
    std::array<float, 4> terms;
    float sum;
  };
  const std::vector<Column> columns = {
      {{1, 0x1p-24f, 0, 0}, 1},                          // a tie goes to the even neighbour
      {{0x1.000002p0f, 0x1p-24f, 0, 0}, 0x1.000004p0f},  // here above
      {{1, 0x1p-24f, kLeast, 0}, 0x1.000002p0f},         // the least breaks it
      {{1, 0x1p-24f, -kLeast, 0}, 1},
      {{-1, -0x1p-24f, -kLeast, 0}, -0x1.000002p0f},
      {{kMost, kMost, -kMost, -kMost}, 0},
      {{kMost, kMost, -kMost, kLeast}, kMost},
      {{kMost, kMost, 0, 0}, kInfinity},
      {{-kMost, -0x1p103f, 0, 0}, -kInfinity},  // half a unit above the greatest
      {{kMost, 0x1p102f, 0, 0}, kMost},
      {{kMost, -kMost, kLeast, kLeast}, 2 * kLeast},
      {{0x1p-126f, -kLeast, 0, 0}, 0x1p-126f - kLeast},
      {{-0x1p-127f, -0x1p-127f, 0, 0}, -0x1p-126f},
      {{0x1.fffffep-1f, 0x1p-25f, kLeast, 0}, 1},  // the fraction overflows
      {{-0.0f, -0.0f, 0, 0}, 0},
      {{kInfinity, kMost, -1, 0}, kInfinity},
      {{-kInfinity, kMost, -kInfinity, 0}, -kInfinity},
      {{kInfinity, -kInfinity, 0, 0}, nan},
      {{nan, 1, 0, 0}, nan},
      {{-nan, kInfinity, 0, 0}, nan},
  };
  std::vector<float> terms;
  for (int i = 0; i < 4; ++i) {
    for (const Column& column : columns) terms.push_back(column.terms[i]);
  }
  const auto found = sums_of(*nvrtc, terms, static_cast<int>(columns.size()), 1, 1);
  for (size_t c = 0; c < columns.size(); ++c) {
    INFO("column " << c);
    const bool same =
        std::isnan(columns[c].sum) ? std::isnan(found[c]) : found[c] == columns[c].sum;
    CHECK_MESSAGE(same, found[c]);
    CHECK((std::isnan(found[c]) || std::signbit(found[c]) == std::signbit(columns[c].sum)));
  }
}
