// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover 32-bit addresses of local memory and of parameters, as LLVM makes them with
// short pointers.
#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

constexpr const char* kPtx = R"(
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .align 8 .b8 values[16]) {
  .local .align 4 .b8 __local_depot0[16];
  .reg .b32 %SPL; .reg .b32 %r<8>; .reg .b64 %rd<8>;
  mov.b32 %SPL, __local_depot0;
  mov.u32 %r0, %tid.x;
  add.u32 %r1, %SPL, 8;
  st.local.b32 [%r1], %r0;
  st.local.b32 [%SPL+4], 7;
  ld.local.b32 %r2, [%r1+-4];
  ld.local.b32 %r3, [%SPL+8];
  add.u32 %r2, %r2, %r3;
  mov.b32 %r4, values;
  ld.param.b32 %r5, [%r4+8];
  add.u32 %r2, %r2, %r5;
  cvt.u64.u32 %rd1, %r4;
  cvta.param.u64 %rd1, %rd1;
  ld.b32 %r6, [%rd1+12];
  add.u32 %r2, %r2, %r6;
  ld.param.u64 %rd2, [out];
  mul.wide.u32 %rd3, %r0, 4;
  add.u64 %rd2, %rd2, %rd3;
  st.global.b32 [%rd2], %r2;
  ret;
}
)";

struct Values {
  uint32_t word[4];
};

}  // namespace

TEST_CASE("32-bit registers address local memory and parameters") {
  Device device;
  device.load(kPtx);
  const uint64_t out = device.buffer(32 * 4);
  const Outcome outcome = device.run("k", 1, 32, out, Values{{1, 2, 300, 4000}});
  CHECK(outcome.error == 0);
  CHECK(outcome.findings.empty());
  const auto got = device.download<uint32_t>(out, 32);
  for (uint32_t t = 0; t < 32; ++t) CHECK(got[t] == 7 + t + 300 + 4000);
}
