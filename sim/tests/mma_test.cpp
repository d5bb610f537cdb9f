// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover mma.sync: every shape and type against the product by its definition, with
// fragments packed by the formulas of the PTX manual.
#include "sim/tests/mma_model.h"

namespace sim::test {
namespace {

TEST_CASE("mma.sync: every shape and type is the product") {
  for (const Case& c : all_cases()) {
    for (uint32_t seed = 1; seed <= 2; ++seed) check(c, seed);
  }
}

// One nonzero element on either side leaves one nonzero element of D: places, not sums.
TEST_CASE("mma.sync: each element of A and B has its place") {
  std::mt19937 rng(7);
  for (const Case& c : all_cases()) {
    if (c.extra == ".xor.popc" || c.extra == ".satfinite") continue;
    Problem p = random_problem(c, rng);
    std::fill(p.a.bits.begin(), p.a.bits.end(), 0);
    std::fill(p.b.bits.begin(), p.b.bits.end(), 0);
    std::fill(p.c.bits.begin(), p.c.bits.end(), 0);
    const int row = static_cast<int>(rng() % c.m), col = static_cast<int>(rng() % 8);
    const int k = static_cast<int>(rng() % c.k);
    do p.a.at(row, k) = random_element(c.a, rng);
    while (p.a.value(row, k) == 0);
    do p.b.at(k, col) = random_element(c.b, rng);
    while (p.b.value(k, col) == 0);
    const Matrix d = execute(c, p);
    INFO(opcode(c));
    int wrong = 0;
    for (int r = 0; r < c.m; ++r) {
      for (int n = 0; n < 8; ++n) wrong += (d.value(r, n) != 0) != (r == row && n == col);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("mma.sync: worked places") {
  // Lane 22 is g = 5, q = 2.
  CHECK(find_shape(16, 16, 16).a(5, 2, 5).row == 5);
  CHECK(find_shape(16, 16, 16).a(5, 2, 5).col == 13);
  CHECK(find_shape(16, 16, 16).b(5, 2, 3).row == 13);
  CHECK(accumulator(5, 2, 3).row == 13);
  CHECK(accumulator(5, 2, 3).col == 5);
  CHECK(find_shape(16, 32, 8).a(5, 2, 13).row == 13);
  CHECK(find_shape(16, 32, 8).a(5, 2, 13).col == 25);
  CHECK(find_shape(16, 32, 8).b(5, 2, 6).row == 26);
  CHECK(find_shape(16, 8, 32).a(5, 2, 3).col == 6);
}

TEST_CASE("mma.sync: saturation and wrapping of the final sum") {
  for (const char* extra : {"", ".satfinite"}) {
    const Case c{16, 32, "s32", "u8", "u8", extra};
    std::mt19937 rng(3);
    Problem p = random_problem(c, rng);
    std::fill(p.a.bits.begin(), p.a.bits.end(), 255);
    std::fill(p.b.bits.begin(), p.b.bits.end(), 255);
    std::fill(p.c.bits.begin(), p.c.bits.end(), 0x7FFFFFFFu);
    const Matrix d = execute(c, p);
    const double want = *extra ? 2147483647.0 : 2147483647.0 + 32 * 65025 - 4294967296.0;
    CHECK(d.value(3, 5) == want);
    CHECK(d.value(15, 7) == want);
  }
}

TEST_CASE("mma.sync: infinities, NaN, subnormals") {
  const Case c{16, 16, "f32", "bf16", "bf16", ""};
  Problem p{Matrix("bf16", 16, 16), Matrix("bf16", 16, 8), Matrix("f32", 16, 8)};
  p.a.at(0, 3) = 0x7F80;  // inf * 0
  p.a.at(1, 3) = 0x7F80;
  p.b.at(3, 1) = 0x3F80;  // inf * 1
  p.a.at(2, 4) = 0x0001;  // 2^-133 * 2^-7
  p.b.at(4, 2) = 0x3C00;
  p.a.at(3, 5) = 0x7F7F;  // overflow
  p.b.at(5, 3) = 0x7F7F;
  const Matrix d = execute(c, p);
  CHECK(d.at(0, 0) == 0x7FFFFFFF);
  CHECK(d.at(1, 1) == 0x7F800000);
  CHECK(d.at(2, 2) == 0x00000200);  // 2^-140
  CHECK(d.at(3, 3) == 0x7F800000);
  const Case fp8{16, 32, "f16", "e4m3", "e5m2", ""};
  Problem q{Matrix("e4m3", 16, 32), Matrix("e5m2", 32, 8), Matrix("f16", 16, 8)};
  q.a.at(0, 9) = 0x7F;  // NaN, whatever it meets
  q.a.at(1, 9) = 0x7E;  // 448
  q.b.at(9, 1) = 0x7C;  // inf
  q.b.at(9, 2) = 0x7B;  // 57344: the product is past f16
  q.b.at(9, 4) = 0x01;  // 2^-16: 448 * 2^-16 = 7 * 2^-10
  const Matrix e = execute(fp8, q);
  CHECK(e.at(0, 0) == 0x7FFF);
  CHECK(e.at(1, 1) == 0x7C00);
  CHECK(e.at(1, 2) == 0x7C00);
  CHECK(e.value(1, 4) == 7.0 / 1024);
}

// 2^24 + 1 + 1: one rounding keeps the 2, rounding at each step loses both, and so does cutting.
TEST_CASE("mma.sync: three ways to add") {
  const Case c{16, 16, "f32", "f16", "f16", ""};
  Problem p{Matrix("f16", 16, 16), Matrix("f16", 16, 8), Matrix("f32", 16, 8)};
  p.c.at(4, 4) = 0x4B800000;  // 2^24
  p.a.at(4, 0) = p.a.at(4, 1) = p.b.at(0, 4) = p.b.at(1, 4) = 0x3C00;
  // 1 + 3 * 2^-25 in steps of 2^-25: each step is half of a unit or less, together they are more.
  CHECK(execute(c, p).value(4, 4) == 16777218.0);
  CHECK(execute(c, p, TensorSum::sequential).value(4, 4) == 16777216.0);
  CHECK(execute(c, p, TensorSum::coarse).value(4, 4) == 16777218.0);
  const Case fp8{16, 32, "f32", "e4m3", "e4m3", ""};
  Problem q{Matrix("e4m3", 16, 32), Matrix("e4m3", 32, 8), Matrix("f32", 16, 8)};
  q.c.at(4, 4) = 0x46000000;           // 2^13
  q.a.at(4, 0) = q.b.at(0, 4) = 0x38;  // 1
  q.a.at(4, 1) = 0x30;                 // 0.5, twice
  q.a.at(4, 2) = 0x30;
  q.b.at(1, 4) = q.b.at(2, 4) = 0x38;
  CHECK(execute(fp8, q).value(4, 4) == 8194.0);
  CHECK(execute(fp8, q, TensorSum::sequential).value(4, 4) == 8194.0);
  CHECK(execute(fp8, q, TensorSum::coarse).value(4, 4) == 8193.0);
}

// Every mode against the definition within its error, for values of any size.
TEST_CASE("mma.sync: every way of adding is near the product") {
  const Case c{16, 16, "f32", "bf16", "bf16", ""};
  std::mt19937 rng(11);
  Problem p = random_problem(c, rng);
  for (const TensorSum mode : {TensorSum::exact, TensorSum::sequential, TensorSum::coarse}) {
    const Matrix d = execute(c, p, mode);
    double worst = 0;
    for (int row = 0; row < 16; ++row) {
      for (int col = 0; col < 8; ++col) {
        double size = std::fabs(p.c.value(row, col));
        for (int k = 0; k < 16; ++k) size += std::fabs(p.a.value(row, k) * p.b.value(k, col));
        worst = std::max(worst, std::fabs(d.value(row, col) - expected(c, p, row, col)) / size);
      }
    }
    CHECK(worst < 17 * std::ldexp(1.0, -23));
  }
}

TEST_CASE("mma.sync: forms that do not exist are refused") {
  for (const char* op : {"mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16",
                         "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
                         "mma.sync.m16n8k16.row.col.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
                         "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
                         "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
                         "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32"}) {
    std::string log;
    CAPTURE(op);
    CHECK(Module::parse(mma_kernel(op, {4, 2, 4, 4}, false), &log) == nullptr);
    CHECK(log.find("unsupported") != std::string::npos);
  }
}

TEST_CASE("mma.sync: modifiers in another order, a warp that is not whole") {
  const std::string op = "mma.m16n8k16.row.aligned.col.sync.f32.f16.f16.f32";
  Device device;
  device.load(mma_kernel(op, {4, 2, 4, 4}, false));
  const uint64_t zeros = device.upload(std::vector<uint32_t>(128, 0));
  CHECK(device.run("k", 1, 32, zeros, zeros, zeros, zeros).error == 0);
  const Outcome o = device.run("k", 1, 16, zeros, zeros, zeros, zeros);
  CHECK(o.error == 719);
  REQUIRE(o.findings.size() == 1);
  CHECK(o.findings[0].kind == "partial_warp");
  CHECK(o.findings[0].check == "synccheck");
}

}  // namespace
}  // namespace sim::test
