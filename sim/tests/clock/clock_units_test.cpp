// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of the clock's units:
//   [guide] CUDA programming guide, table of arithmetic instructions: results per cycle and
//           multiprocessor, by compute capability. It has 64 for all conversions of Hopper, of
//           which [units] has 16 to integers, by the special functions' pipe, and 64 from them, by
//           the ALU.
//   [luo]   Luo et al., Dissecting the Nvidia Hopper architecture (arXiv 2402.13499, 2501.12084)
//   [abdel] Abdelkhalik et al., Demystifying the Nvidia Ampere architecture (arXiv 2208.11174)
//   [accel] Accel-Sim's tested configurations: SM86_RTX3070 and SM75_RTX2060 have a latency of 21
//           for special functions, SM7_QV100 20, each with two cycles of the pipeline in front
#include "sim/tests/clock/clock_bench.h"

using namespace sim;
using namespace sim::test;

namespace {

struct Chain {
  const char* what;
  const char* body;        // of registers %f20, or %r20
  double measured, ratio;  // [units]
  double of_ptx = ratio;   // where the schedule is not ptxas's
};

}  // namespace

TEST_CASE("instructions one after the other, beside an H200") {
  const Chain chains[] = {
      {"fma.f32", " fma.rn.f32 %f20, %f20, %f1, %f20;\n", 4.07, 1},
      {"fma.f16x2", " fma.rn.f16x2 %r20, %r20, %r1, %r20;\n", 8.04, 1},
      {"fma.bf16x2", " fma.rn.bf16x2 %r20, %r20, %r1, %r20;\n", 8.04, 1},
      {"fma.f64", " fma.rn.f64 %e0, %e0, %e1, %e0;\n", 8.02, 1},
      {"mad.s32", " mad.lo.s32 %r20, %r20, %r1, %r20;\n", 4.05, 1, 1.23},
      {"lop3", " lop3.b32 %r20, %r20, %r1, %r3, 0x6A;\n", 4.06, 1, 1.23},
      {"shf", " shf.l.wrap.b32 %r20, %r20, %r1, 7;\n", 4.06, 1, 1.23},
      {"ex2", " ex2.approx.ftz.f32 %f20, %f20;\n", 17, 1.48},
      {"lg2", " lg2.approx.ftz.f32 %f20, %f20;\n", 17, 1.48},
      {"rsqrt", " rsqrt.approx.ftz.f32 %f20, %f20;\n", 17, 1.48},
      {"cvt to bf16x2", " cvt.rn.bf16x2.f32 %r20, %r20, %f1;\n", 4.06, 1, 1.23},
      {"cvt to s32", " cvt.rni.s32.f32 %r20, %r20;\n", 17, 1},
      {"cvt from s32", " cvt.rn.f32.s32 %r20, %r20;\n", 4.06, 1, 1.23},
      {"shfl", " shfl.sync.bfly.b32 %r20, %r20, 1, 31, -1;\n", 24, 0.955},
  };
  for (const Chain& chain : chains) {
    Bench b;
    b.registers = " .reg .f64 %e<2>;";
    b.times = 128;
    b.before =
        " mov.f32 %f1, %f21;\n mov.u32 %r1, %clock;\n mov.u32 %r3, %tid.x;\n"
        " mov.b32 %r20, %f20;\n cvt.f64.f32 %e0, %f20;\n cvt.f64.f32 %e1, %f21;\n";
    b.body = chain.body;
    b.after =
        " mov.b32 %f2, %r20;\n add.f32 %f20, %f20, %f2;\n cvt.rn.f32.f64 %f2, %e0;\n"
        " add.f32 %f20, %f20, %f2;\n";
    for (const bool ptx_only : ways()) {
      CAPTURE(ptx_only);
      beside(std::string("dependent ") + chain.what, cycles_of(b, ptx_only), chain.measured,
             ptx_only ? chain.of_ptx : chain.ratio);
    }
  }
}

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
  double hopper, ampere;  // results a cycle and multiprocessor [guide], [units]; 0: not held
  const char* after = "";
};

// Eight chains in each of four warps of a part keep its unit busy. The body is so long that ptxas
// does not unroll the loop: nothing in it leaves a mark that would tell the clock.
void check_rate(const Rate& rate) {
  Bench b;
  b.threads = 128 * 4;
  b.times = 8;
  b.loop = true;
  b.registers = " .reg .f64 %e<10>;";
  b.before =
      " mov.f32 %f1, %f21;\n mov.f32 %f3, %f22;\n mov.u32 %r1, %clock;\n mov.u32 %r3, %tid.x;\n"
      " cvt.f64.f32 %e9, %f1;\n" +
      numbered(8, " cvt.f64.f32 %e#, %f2#;\n mov.b32 %r2#, %f2#;\n");
  b.body = repeated(16, numbered(8, rate.body));
  b.after = numbered(8, rate.after);
  const double results = 16 * 8.0 * b.threads * rate.instructions;
  if (rate.hopper > 0) expect(b, rate.what, results / rate.hopper, 0.10);
  if (rate.ampere > 0) expect(ampere(b), rate.what, results / rate.ampere, 0.12);
}

}  // namespace

TEST_CASE("the rate of each unit") {
  const char* const bits = " mov.b32 %f2#, %r2#;\n";
  const Rate rates[] = {
      {"fma.f32", " fma.rn.f32 %f2#, %f2#, %f1, %f2#;\n", 1, 128, 64},
      {"fma.f16x2", " fma.rn.f16x2 %r2#, %r2#, %r1, %r2#;\n", 1, 125.6, 128, bits},
      {"fma.bf16x2", " fma.rn.bf16x2 %r2#, %r2#, %r1, %r2#;\n", 1, 125.5, 0, bits},
      {"fma.f64", " fma.rn.f64 %e#, %e#, %e9, %e#;\n", 1, 64, 32, " cvt.rn.f32.f64 %f2#, %e#;\n"},
      {"mad.s32", " mad.lo.s32 %r2#, %r2#, %r1, %r2#;\n", 1, 64, 64, bits},
      {"lop3 and shf",
       " lop3.b32 %r2#, %r2#, %r1, %r3, 0x6A;\n shf.l.wrap.b32 %r2#, %r2#, %r1, 7;\n", 2, 64, 64,
       bits},
      {"ex2", " ex2.approx.ftz.f32 %f2#, %f2#;\n", 1, 16, 16},
      {"cvt to s32 and back", " cvt.rni.s32.f32 %r2#, %f2#;\n cvt.rn.f32.s32 %f2#, %r2#;\n", 2,
       31.9, 16},
      {"cvt to s32", " cvt.rni.s32.f32 %r2#, %r2#;\n", 1, 16, 16, bits},
      {"cvt from s32", " cvt.rn.f32.s32 %r2#, %r2#;\n", 1, 63.7, 16, bits},
      {"cvt to bf16x2", " cvt.rn.bf16x2.f32 %r2#, %r2#, %f1;\n", 1, 63.7, 0, bits},
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
    const double ratio = (29 + conflicts) / (23.0 + 2 * conflicts);
    expect(chain, "dependent ld.shared", {23.0 + 2 * conflicts, ratio, 0.10}, 29 + conflicts, 0.10);
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

TEST_CASE("ldmatrix of one matrix and of four, beside an H200") {
  for (const int matrices : {1, 4}) {
    Bench chain;  // the word that each lane gets is its own address
    chain.dynamic_shared = 1024;
    chain.before =
        " mov.u32 %r2, room;\n shl.b32 %r1, %r0, 4;\n add.u32 %r1, %r1, %r2;\n"
        " shl.b32 %r3, %r0, 2;\n add.u32 %r3, %r3, %r2;\n st.shared.u32 [%r3], %r1;\n"
        " bar.warp.sync 0xFFFFFFFF;\n";
    const std::string rest = matrices == 4 ? ", %r5, %r6, %r7" : "";
    chain.body = " ldmatrix.sync.aligned.m8n8.x" + std::to_string(matrices) + ".shared.b16 {%r1" +
                 rest + "}, [%r1];\n";
    chain.after = " mov.b32 %f20, %r1;\n";
    expect(chain, "dependent ldmatrix",
           {matrices == 4 ? 29.0 : 23.0, matrices == 4 ? 1.1 : 1.26, 0.06});
  }
}
