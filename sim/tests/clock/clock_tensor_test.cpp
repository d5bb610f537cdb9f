// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of the clock's tensor cores:
//   [sheet] H100 white paper: 989 TFLOP/s of bf16 on 132 multiprocessors at 1.83 GHz are 4096
//           operations a cycle of each
//   [luo]   Luo et al., Dissecting the Nvidia Hopper architecture (arXiv 2402.13499, 2501.12084)
//   [rt]    Dash-Crystal/flashinfer, docs/mixed_kv_page_transport_backends.md, P0.3 (d): an H200
//   [sun]   Sun et al., Dissecting tensor cores via microbenchmarks (arXiv 2206.02874)
//   [units] bench/results/units-h200-2026-11-26.csv
#include "sim/tests/clock/clock_bench.h"

using namespace sim;
using namespace sim::test;

namespace {

std::string product(int first) {  // sums in %f2<first> and the three behind it
  std::string sums;
  for (int k = 0; k < 4; ++k) sums += (k ? ", %f2" : "%f2") + std::to_string(first + k);
  return " mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {" + sums +
         "}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {" + sums + "};\n";
}

// The factors come from memory: ptxas makes a constant one again before each product.
Bench multiplies(int chains, int warps) {
  Bench b;
  b.threads = static_cast<uint32_t>(32 * warps);
  b.before = numbered(10, " mov.b32 %r#, %f1#;\n");
  for (int chain = 0; chain < chains; ++chain) b.body += product(4 * chain);
  return b;
}

}  // namespace

TEST_CASE("mma.sync: 24 cycles one after the other") {
  const Bench dependent = multiplies(1, 1);
  expect(ampere(dependent), "dependent mma", 24.6, 0.10);  // [luo]
  expect(dependent, "dependent mma", {24, 1}, 24.1, 0.10);
}

TEST_CASE("mma.sync: the rate of the tensor cores side by side") {
  for (const int warps : {8, 16}) {
    Bench b = multiplies(5, warps);
    b.loop = true;
    const int each = 5 * warps / 4;
    // 8 cycles a part on Ampere [sun]; 62 % of wgmma's 4 cycles on Hopper [luo].
    if (warps == 16) expect(ampere(b), "five mma of each warp", 8 * each, 0.10);
    expect(b, "five mma of each warp", {6.0 * each, 1.07}, 4 / 0.62 * each, 0.10);
  }
}

namespace {

// Bodies of `count` products of 64 rows and n columns one after the other. Each has a factor of its
// own, as ptxas drops some of those that are alike.
Bench products(int count, int n, bool registers) {
  std::string sums;
  for (int k = 0; k < n / 2; ++k) sums += (k ? ", %s" : "%s") + std::to_string(k);
  Bench b;
  b.threads = 128;
  b.dynamic_shared = 65536;
  b.times = n < 64 ? 16 : 4;
  b.registers = " .reg .f32 %s<" + std::to_string(n / 2) + ">;";
  b.before =
      " mov.u32 %r1, room;\n and.b32 %r1, %r1, 262143;\n shr.u32 %r1, %r1, 4;\n"
      " cvt.u64.u32 %d3, %r1;\n or.b64 %d3, %d3, 4611686293305360384;\n" +
      numbered(8, " add.s64 %d1#, %d3, #;\n") + numbered(4, " mov.b32 %r1#, %f2#;\n") +
      numbered(n / 2, " mov.f32 %s#, 0f00000000;\n") + " wgmma.fence.sync.aligned;\n";
  for (int k = 0; k < count; ++k) {
    const std::string factor = "%d1" + std::to_string(k);
    const std::string a = registers ? "{%r10, %r11, %r12, %r13}" : factor;
    b.body += " wgmma.mma_async.sync.aligned.m64n" + std::to_string(n) + "k16.f32.bf16.bf16 {" +
              sums + "}, " + a + ", " + factor + ", 1, 1, 1, 0" + (registers ? "" : ", 0") + ";\n";
  }
  b.loop = true;
  b.after = " wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;\n" +
            numbered(n / 2, " add.f32 %f0, %f0, %s#;\n");
  return b;
}

// Eight products a group, and one group is open while the next is issued.
Bench long_run(int n, bool registers) {
  Bench b = products(8, n, registers);
  b.body = " wgmma.fence.sync.aligned;\n" + b.body +
           " wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 1;\n";
  return b;
}

}  // namespace

TEST_CASE("wgmma: n / 2 cycles, or the time of its factors in shared memory") {
  // [sheet] for n / 2; [luo]: the full rate from n 64 on, two thirds of it at 32 with both factors
  // in shared memory, which gives 128 bytes a cycle: 64 rows of A and n of B.
  const struct {
    int n;
    double shared, registers;  // [units]
    // Small products with A in registers wait for the moves that put it there, of which the clock
    // knows nothing.
    double ratio;
  } measured[] = {{8, 18, 20.9, 0.242}, {16, 20, 21.9, 0.365}, {32, 24, 26.1, 0.613},
                  {64, 32, 32, 1},      {128, 64, 64, 1},      {256, 128, 128, 1}};
  for (const auto& m : measured) {
    for (const bool registers : {false, true}) {
      CAPTURE(m.n);
      CAPTURE(registers);
      const double passes = (registers ? 0 : 16) + m.n / 4.0;
      Bench b = long_run(m.n, registers);
      b.machine_code = m.n <= 32;  // ptxas takes seconds for each of the larger ones
      const double cycles = 8 * (registers ? m.registers : m.shared);
      const double published = m.n == 8 && registers ? 0 : 8 * std::max(m.n / 2.0, passes);
      expect(b, "eight wgmma", {cycles, registers ? m.ratio : 1}, published, 0.10);
    }
  }
}

TEST_CASE("wgmma: from the fence to the end of the wait") {
  const struct {
    int n;
    double cycles[4];  // of 1, 2, 4 and 8 products [units]
    // Too short: a wait ends 16 to 28 cycles later than [rt] has it, and the warps of a warpgroup
    // are not held together, so that small products of one overlap with waits of another.
    double ratios[4];
  } measured[] = {{8, {77, 90, 120, 192}, {0.87, 0.80, 0.68, 0.75}},
                  {64, {105, 132, 190, 318}, {0.73, 0.83, 0.96, 0.97}},
                  {128, {137, 191, 318, 574}, {0.80, 0.91, 0.95, 0.97}},
                  {256, {201, 319, 574, 1086}, {0.86, 0.94, 1, 1}}};
  for (const auto& m : measured) {
    for (int k = 0; k < 4; ++k) {
      Bench b = products(1 << k, m.n, false);
      b.body = " wgmma.fence.sync.aligned;\n" + b.body +
               " wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;\n";
      const std::string what = std::to_string(1 << k) + " wgmma of n " + std::to_string(m.n);
      b.machine_code = m.n == 8;
      const bool published = m.n == 8 && k == 0;  // [rt], without the loop of machine code
      expect(b, what, {m.cycles[k], m.ratios[k], 0.06}, published ? 57.7 : 0, 0.23);
    }
  }
}
