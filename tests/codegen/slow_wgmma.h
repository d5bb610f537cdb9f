// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A unit for sm_90a with a loop of wgmma, written well, or so that ptxas must take speed away.
#pragma once

#include <string>

namespace lathe::test {

struct WgmmaUnit {
  const char* bounds = "__launch_bounds__(128, 1)";
  bool touched = false;         // the accumulator is read between issue and wait: serialised
  bool more_registers = false;  // setmaxnreg, which without bounds is ignored
};

inline std::string wgmma_unit(const WgmmaUnit& how) {
  std::string unit = "extern \"C\" __global__ void ";
  unit += how.bounds;
  unit += " entry(float* out, unsigned long long a, unsigned long long b) {\n";
  if (how.more_registers) unit += "  asm volatile(\"setmaxnreg.inc.sync.aligned.u32 240;\");\n";
  unit += R"(  float d[4] = {out[0], out[1], out[2], out[3]};
  for (int i = 0; i < 9; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                 "{%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
)";
  if (how.touched) unit += "    out[i * 128 + threadIdx.x] = d[0];\n";
  unit += R"(    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int n = 0; n < 4; ++n) asm volatile("" : "+f"(d[n]));
  }
  for (int n = 0; n < 4; ++n) out[threadIdx.x * 4 + n] = d[n];
}
)";
  return unit;
}

}  // namespace lathe::test
