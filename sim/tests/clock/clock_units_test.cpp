// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of the clock's units:
//   [guide] CUDA programming guide, table of arithmetic instructions: results per cycle and
//           multiprocessor, by compute capability
//   [sheet] H100 white paper: 989 TFLOP/s of bf16 on 132 multiprocessors at 1.83 GHz are 4096
//           operations a cycle of each
//   [luo]   Luo et al., Dissecting the Nvidia Hopper architecture (arXiv 2402.13499, 2501.12084)
//   [rt]    Dash-Crystal/flashinfer, docs/mixed_kv_page_transport_backends.md, P0.3 (d): an H200
//   [abdel] Abdelkhalik et al., Demystifying the Nvidia Ampere architecture (arXiv 2208.11174)
//   [sun]   Sun et al., Dissecting tensor cores via microbenchmarks (arXiv 2206.02874)
//   [accel] Accel-Sim's tested configurations: SM86_RTX3070 and SM75_RTX2060 have a latency of 21
//           for special functions, SM7_QV100 20, each with two cycles of the pipeline in front
#include "sim/tests/clock/clock_bench.h"

using namespace sim;
using namespace sim::test;

TEST_CASE("fma: four cycles one after the other") {
  Bench dependent;
  dependent.body = " fma.rn.f32 %f20, %f20, %f1, %f20;\n";
  dependent.before = " mov.f32 %f1, %f21;\n";
  expect(dependent, "dependent fma", 4, 0.15);  // [abdel], [luo]
  expect(ampere(dependent), "dependent fma", 4, 0.15);
}

namespace {

struct Rate {
  const char* what;
  const char* body;
  int instructions;
  double hopper, ampere;  // results a cycle and multiprocessor [guide]
  const char* after = "";
  bool hopper_code = true;  // held against Hopper's machine code too
};

// Hopper's machine code of two rates is not held against the guide: ptxas mixes HFMA2 with moves,
// and converts from integers by I2FP, which is another unit's. Eight chains in each of four warps
// of a part keep its unit busy.
void check_rate(const Rate& rate) {
  Bench b;
  b.threads = 128 * 4;
  b.times = 64;
  b.registers = " .reg .f64 %e<10>;";
  b.before =
      " mov.f32 %f1, %f21;\n mov.u32 %r1, %clock;\n mov.u32 %r3, %tid.x;\n"
      " cvt.f64.f32 %e9, %f1;\n" +
      numbered(8, " cvt.f64.f32 %e#, %f2#;\n mov.b32 %r2#, %f2#;\n");
  b.body = numbered(8, rate.body);
  b.after = numbered(8, rate.after);
  const double results = 8.0 * b.threads * rate.instructions;
  b.machine_code = rate.hopper_code;
  expect(b, rate.what, results / rate.hopper, 0.12);
  b.machine_code = true;
  expect(ampere(b), rate.what, results / rate.ampere, 0.12);
}

}  // namespace

TEST_CASE("the rate of each unit") {
  const char* const bits = " mov.b32 %f2#, %r2#;\n";
  const Rate rates[] = {
      {"fma.f32", " fma.rn.f32 %f2#, %f2#, %f1, %f2#;\n", 1, 128, 64},
      {"fma.f16x2", " fma.rn.f16x2 %r2#, %r2#, %r1, %r2#;\n", 1, 128, 128, bits, false},
      {"fma.f64", " fma.rn.f64 %e#, %e#, %e9, %e#;\n", 1, 64, 32, " cvt.rn.f32.f64 %f2#, %e#;\n"},
      {"mad.s32", " mad.lo.s32 %r2#, %r2#, %r1, %r2#;\n", 1, 64, 64, bits},
      {"lop3 and shf",
       " lop3.b32 %r2#, %r2#, %r1, %r3, 0x6A;\n shf.l.wrap.b32 %r2#, %r2#, %r1, 7;\n", 2, 64, 64,
       bits},
      {"ex2", " ex2.approx.ftz.f32 %f2#, %f2#;\n", 1, 16, 16},
      {"cvt", " cvt.rni.s32.f32 %r2#, %f2#;\n cvt.rn.f32.s32 %f2#, %r2#;\n", 2, 64, 16, "", false},
      {"shfl", " shfl.sync.bfly.b32 %r2#, %r2#, 1, 31, -1;\n", 1, 32, 32, bits},
  };
  for (const Rate& rate : rates) check_rate(rate);
}

TEST_CASE("ex2: its result can be used after 23 cycles") {
  Bench dependent;
  dependent.body = " ex2.approx.ftz.f32 %f20, %f20;\n";
  expect(dependent, "dependent ex2", 23, 0.09);  // [accel]
  expect(ampere(dependent), "dependent ex2", 23, 0.09);
}

TEST_CASE("ld.shared: its latency, and a cycle for each conflict") {
  for (const int conflicts : {0, 1, 3, 7, 31}) {
    Bench chain;  // a pointer that leads to itself
    chain.dynamic_shared = 32 * 128;
    chain.before = " mul.lo.u32 %r1, %r0, " + std::to_string(4 * (conflicts + 1)) +
                   ";\n mov.u32 %r2, room;\n add.u32 %r1, %r1, %r2;\n st.shared.u32 [%r1], %r1;\n"
                   " bar.warp.sync 0xFFFFFFFF;\n";
    chain.body = " ld.shared.u32 %r1, [%r1];\n";
    chain.after = " mov.b32 %f20, %r1;\n";
    CAPTURE(conflicts);
    // [luo]: 29 on Hopper, [abdel]: 23 on Ampere, where [luo] has 29 too; neither has logs. A
    // wavefront more for each way, one a cycle: NVIDIA's profiling guide on wavefronts of shared
    // memory.
    expect(chain, "dependent ld.shared", 29 + conflicts, 0.10);
    expect(ampere(chain), "dependent ld.shared", 23 + conflicts, 0.10);
    Bench many = chain;  // wavefronts of four warps a part follow one another
    many.threads = 512;
    many.times = 16;
    many.dynamic_shared = 512 * 4 * 32;
    many.before += numbered(8, " mov.u32 %r3#, 0;\n");
    many.body = numbered(8, " ld.volatile.shared.u32 %r2#, [%r1];\n") +
                numbered(8, " xor.b32 %r3#, %r3#, %r2#;\n");
    many.after = numbered(8, " mov.b32 %f2#, %r3#;\n");
    if (conflicts == 31) many.dynamic_shared = 512 * 128;
    expect(many, "eight ld.shared of sixteen warps", 8 * 16 * (conflicts + 1), 0.10);
  }
}

TEST_CASE("mma.sync: 24 cycles one after the other, the rate of the tensor cores side by side") {
  auto product = [](int first) {  // sums in %f2<first> and the three behind it
    std::string sums;
    for (int k = 0; k < 4; ++k) sums += (k ? ", %f2" : "%f2") + std::to_string(first + k);
    return " mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {" + sums +
           "}, {%r4, %r5, %r6, %r7}, {%r8, %r9}, {" + sums + "};\n";
  };
  Bench dependent;
  dependent.before = numbered(10, " mov.u32 %r#, 0;\n");
  dependent.body = product(0);
  expect(ampere(dependent), "dependent mma", 24.6, 0.10);  // [luo]
  expect(dependent, "dependent mma", 24.1, 0.10);
  Bench independent = dependent;
  independent.body.clear();
  for (int first = 0; first < 20; first += 4) independent.body += product(first);
  independent.threads = 512;
  // 8 cycles a part on Ampere [sun]; 62 % of wgmma's 4 cycles on Hopper [luo].
  expect(ampere(independent), "five mma of four warps", 5 * 4 * 8, 0.10);
  independent.machine_code = false;  // there the replay takes 43 % more: not understood
  expect(independent, "five mma of four warps", 5 * 4 * 4 / 0.62, 0.10);
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
  b.times = n < 64 ? 32 : 4;
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
  b.after = " wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;\n" +
            numbered(n / 2, " add.f32 %f0, %f0, %s#;\n");
  return b;
}

}  // namespace

TEST_CASE("wgmma: n / 2 cycles, or the time of its factors in shared memory") {
  for (const int n : {8, 16, 32, 64, 128, 256}) {
    for (const bool registers : {false, true}) {
      CAPTURE(n);
      CAPTURE(registers);
      // [sheet] for n / 2; [luo]: the full rate from n 64 on, two thirds of it at 32 with both
      // factors in shared memory, which gives 128 bytes a cycle: 64 rows of A and n of B. [rt]
      // measured 18.3 at n 8.
      const double passes = (registers ? 0 : 16) + n / 4.0;
      Bench b = products(8, n, registers);
      b.machine_code = n > 16;  // ptxas leaves products out
      expect(b, "eight wgmma", 8 * std::max(n / 2.0, passes), 0.10);
    }
  }
}

// Of four and eight products the clock makes 78 and 144 cycles, where 113.5 and 185.5 were measured
// [rt]: it does not hold the warps of a warpgroup together, so that one waits while others
// multiply.
TEST_CASE("wgmma: from the fence to the end of the wait") {
  Bench b = products(1, 8, false);
  b.machine_code = false;  // ptxas leaves products out
  b.body = " wgmma.fence.sync.aligned;\n" + b.body +
           " wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;\n";
  expect(b, "one wgmma", 57.7, 0.15);  // [rt]
}
