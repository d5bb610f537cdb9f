// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/sim_kernels.h"

namespace bench {
namespace {

// `#` in the piece becomes 0, 1, 2, …
std::string repeat(unsigned times, const std::string& piece) {
  std::string all;
  for (unsigned k = 0; k < times; ++k) {
    for (const char c : piece) all += c == '#' ? std::to_string(k) : std::string(1, c);
    all += '\n';
  }
  return all;
}

// Registers: %t the thread, %in and %out its element of the buffers (4 bytes each), %s its word of
// shared memory, %f0..%f17 sums, stored in the end, %x and %y the constants 0.5 and 1.
std::string kernel(const std::string& setup, const std::string& body) {
  return R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n, .param .align 64 .b8 map[128]) {
  .reg .pred %p, %q<8>; .reg .b32 %n, %t, %s, %r<48>; .reg .f32 %x, %y, %f<24>, %g<8>, %acc<128>;
  .reg .b64 %in, %out, %d<16>;
  .shared .align 1024 .b8 buffer[49152];
  .shared .align 8 .b8 bar[8];
  ld.param.u32 %n, [n]; ld.param.u64 %out, [out]; ld.param.u64 %in, [in];
  mov.u32 %t, %tid.x; mul.wide.u32 %d0, %t, 4; add.u64 %in, %in, %d0; add.u64 %out, %out, %d0;
  mov.u32 %s, buffer; shl.b32 %r0, %t, 2; add.u32 %s, %s, %r0;
)" + repeat(18, "  cvt.rn.f32.u32 %f#, %t;") +
         "  mov.f32 %x, 0f3F000000; mov.f32 %y, 0f3F800000;\n" + setup + "LOOP:\n" + body +
         R"(  sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra LOOP;
)" + repeat(18, "  st.global.f32 [%out+0x#000], %f#;") +
         "  ret;\n}\n";
}

// Writes all of the buffer: zeros are fine.
const std::string kFill = R"(  mov.u32 %r40, 0; mov.u32 %r41, %s;
FILL: st.shared.u32 [%r41], 0; add.u32 %r41, %r41, 512; add.u32 %r40, %r40, 1;
  setp.lt.u32 %p, %r40, 96; @%p bra FILL;
  bar.sync 0;
)";

std::string fma(const std::string& guard) {
  return repeat(16, "  " + guard + "fma.rn.f32 %f#, %f#, %x, %y;");
}

// Emits a load and three fused multiply-adds, eight times.
std::string loads(const std::string& load) {
  return repeat(8, load + R"(
  fma.rn.f32 %f#, %f#, %x, %g#; fma.rn.f32 %f1#, %f1#, %x, %y;
  fma.rn.f32 %f#, %f#, %y, %x;)");
}

std::string integers() {
  return kernel(repeat(16, "  add.u32 %r#, %t, #;"), repeat(4, R"(
  mad.lo.s32 %r1, %r0, %r2, %r3; xor.b32 %r4, %r1, %r5; shl.b32 %r6, %r4, 3;
  add.s32 %r0, %r0, %r6; min.s32 %r7, %r0, %r8; shf.l.wrap.b32 %r9, %r7, %r4, 7;
  lop3.b32 %r2, %r9, %r1, %r0, 0x96; and.b32 %r8, %r2, 0xFFFF;)") +
                                                         "  cvt.rn.f32.s32 %f0, %r8;\n");
}

std::string divergence() {
  return kernel("  and.b32 %r1, %t, 1; setp.eq.u32 %q0, %r1, 0;\n",
                R"(
  @%q0 bra EVEN;
)" + repeat(8, "  fma.rn.f32 %f#, %f#, %x, %y;") +
                    "  bra MEET;\nEVEN:\n" + repeat(8, "  fma.rn.f32 %f#, %f#, %y, %x;") +
                    "MEET:\n");
}

std::string matrix_loads() {
  return kernel(kFill + "  shl.b32 %r0, %t, 4; mov.u32 %r1, buffer; add.u32 %r1, %r1, %r0;\n",
                repeat(4, R"(
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r1+0x#000];
  ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r14, %r15, %r16, %r17}, [%r1+0x#000];
  add.u32 %r2, %r10, %r14; add.u32 %r3, %r11, %r15;)"));
}

std::string mma() {
  return kernel(repeat(8, "  mov.b32 %r2#, 0x3F803F80;") + repeat(4, R"(
  mov.f32 %acc1#, 0f00000000; mov.f32 %acc2#, 0f00000000;
  mov.f32 %acc3#, 0f00000000; mov.f32 %acc4#, 0f00000000;)"),
                repeat(4, R"(
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%acc1#, %acc2#, %acc3#, %acc4#},
    {%r20, %r21, %r22, %r23}, {%r24, %r25}, {%acc1#, %acc2#, %acc3#, %acc4#};)"));
}

// A is 64 x 16, B 256 x 16, both K-major without a swizzle; four products deep.
std::string wgmma() {
  std::string sums;
  for (int k = 0; k < 128; ++k) sums += (k ? ", %acc" : "%acc") + std::to_string(k);
  std::string zero;
  for (int k = 0; k < 128; ++k) zero += "  mov.f32 %acc" + std::to_string(k) + ", 0f00000000;\n";
  const std::string description = R"(
  mov.u32 %r1, buffer; shr.u32 %r1, %r1, 4; cvt.u64.u32 %d1, %r1;
  or.b64 %d2, %d1, 0x0000001000080000; add.u64 %d3, %d2, 512;
)";
  return kernel(kFill + "  fence.proxy.async; bar.sync 0;\n" + zero + description,
                "  wgmma.fence.sync.aligned;\n" +
                    repeat(4, "  wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" + sums +
                                  "}, %d2, %d3, 1, 1, 1, 0, 0;") +
                    "  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n");
}

// One thread asks for a tile of 8 KiB, all wait for it.
std::string tensor_copies() {
  return kernel(kFill + R"(
  mov.u32 %r1, buffer; mov.u32 %r2, bar; mov.u32 %r3, 0; setp.eq.u32 %q0, %t, 0;
  mov.b64 %d1, map; cvta.param.u64 %d1, %d1;
  @%q0 mbarrier.init.shared.b64 [%r2], 1;
  fence.proxy.async; bar.sync 0;
)",
                R"(
  @%q0 mbarrier.arrive.expect_tx.shared.b64 %d2, [%r2], 8192;
  @%q0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r1], [%d1, {0, 0}], [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %q1, [%r2], %r3;
  @!%q1 bra WAIT;
  xor.b32 %r3, %r3, 1; bar.sync 0;
)");
}

}  // namespace

std::vector<SimKernel> sim_kernels() {
  const std::string offset = "  shl.b32 %r1, %n, 12; and.b32 %r1, %r1, 0xFFFF;\n";
  const std::string in = offset + "  cvt.u64.u32 %d1, %r1; add.u64 %d1, %d1, %in;\n";
  const std::string shared = "  and.b32 %r1, %n, 7; shl.b32 %r1, %r1, 9; add.u32 %r1, %r1, %s;\n";
  return {
      {"fma", Work::lanes, kernel("", fma("")), true},
      {"fma, half the lanes", Work::lanes,
       kernel("  and.b32 %r1, %t, 1; setp.eq.u32 %q0, %r1, 0;\n", fma("@%q0 "))},
      {"integer mix", Work::lanes, integers()},
      {"ex2", Work::lanes,
       kernel("", repeat(8, "  ex2.approx.ftz.f32 %f#, %f#; fma.rn.f32 %f#, %f#, %x, %y;"))},
      {"divergent branch", Work::lanes, divergence()},
      {"fma and shared load", Work::lanes,
       kernel(kFill, shared + loads("  ld.shared.f32 %g#, [%r1+0x#000];")), true},
      {"fma and shared load, 16 bytes", Work::lanes,
       kernel(kFill + "  sub.u32 %s, %s, %r0; shl.b32 %r0, %t, 4; add.u32 %s, %s, %r0;\n",
              shared + loads("  ld.shared.v4.f32 {%g#, %f18, %f19, %f20}, [%r1+0x#000];")),
       true},
      {"fma and shared load, stride 5", Work::lanes,
       kernel(kFill + "  mov.u32 %s, buffer; mad.lo.u32 %s, %t, 20, %s;\n",
              shared + loads("  ld.shared.f32 %g#, [%r1+0x#000];")),
       true},
      {"fma and global load", Work::lanes,
       kernel("", in + loads("  ld.global.f32 %g#, [%d1+0x#000];")), true},
      {"fma and global load, 16 bytes", Work::lanes,
       kernel("  mul.wide.u32 %d0, %t, 12; add.u64 %in, %in, %d0;\n",
              in + loads("  ld.global.v4.f32 {%g#, %f18, %f19, %f20}, [%d1+0x#000];")),
       true},
      {"fma and global load, stride 5", Work::lanes,
       kernel("  mul.wide.u32 %d0, %t, 16; add.u64 %in, %in, %d0;\n",
              in + loads("  ld.global.f32 %g#, [%d1+0x#000];")),
       true},
      {"shared load, store, fma, add", Work::lanes, kernel(kFill, repeat(4, R"(
  ld.shared.f32 %g#, [%s+0x#000]; fma.rn.f32 %f#, %f#, %x, %g#;
  st.shared.f32 [%s+0x#000], %f#; add.f32 %f#, %f#, %y;)")),
       true},
      {"barrier, exchange, fma", Work::lanes,
       kernel("  xor.b32 %r1, %r0, 128; mov.u32 %r2, buffer; add.u32 %r1, %r1, %r2;\n", R"(
  st.shared.f32 [%s], %f0; bar.sync 0;
  ld.shared.f32 %g0, [%r1]; fma.rn.f32 %f0, %f0, %x, %g0; bar.sync 0;
)"),
       true},
      {"ldmatrix", Work::lanes, matrix_loads(), true},
      {"mma m16n8k16 bf16", Work::products, mma()},
      {"wgmma m64n256k16 bf16", Work::products, wgmma(), true},
      {"tensor copy of 8 KiB", Work::bytes, tensor_copies(), true},
  };
}

std::string empty_kernel() {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n"
         ".visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n, "
         ".param .align 64 .b8 map[128]) {\n  ret;\n}\n";
}

}  // namespace bench
