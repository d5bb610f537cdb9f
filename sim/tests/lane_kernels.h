// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file runs kernels in which every thread leaves one number.
#pragma once

#include "sim/tests/kernel_run.h"

namespace sim::test {

// Returns a kernel "k" over [out] with %t the thread number and %r9 the result it stores.
inline std::string kernel(const std::string& body, const std::string& before = "",
                          const std::string& declarations = "") {
  return unit(before + R"(
.visible .entry k(.param .u64 out) {
  .reg .pred %p<8>; .reg .b32 %r<40>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .b32 %t;
)" + declarations +
              R"(
  mov.u32 %t, %tid.x;
)" + body +
              R"(
  ld.param.u64 %rd1, [out]; mov.u32 %r38, %ctaid.x; mov.u32 %r37, %ntid.x;
  mad.lo.s32 %r38, %r38, %r37, %t; mad.wide.u32 %rd2, %r38, 4, %rd1;
  st.global.u32 [%rd2], %r9;
  ret;
}
)");
}

inline ThreadWords run_threads(const std::string& ptx, uint32_t threads, uint64_t seed = 0,
                               uint32_t blocks = 1, int host_threads = 1) {
  Device device;
  device.settings.seed = seed;
  device.settings.threads = host_threads;
  device.settings.instruction_limit = 20'000'000;
  return run_values(device, ptx, blocks, threads);
}

// Runs under several seeds and compares every thread's result.
template <class F>
void expect(const std::string& ptx, uint32_t threads, F expected) {
  for (uint64_t seed = 0; seed < 8; ++seed) check_values(run_threads(ptx, threads, seed), expected);
}

}  // namespace sim::test
