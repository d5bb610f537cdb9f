// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The PTX that the tests of the runtime register.
#pragma once

#include <string>

namespace sim::tests {

// `name`(p, n, by): adds `by` to n words at p, and to the variable `total` once for each.
inline std::string adding_kernel(const std::string& name) {
  return ".visible .entry " + name + R"((.param .u64 p, .param .u32 n, .param .u32 by)
{
  .reg .pred %out;
  .reg .b32 %i, %n, %t, %b, %v;
  .reg .b64 %at, %o, %sum;
  mov.u32 %i, %ctaid.x;
  mov.u32 %t, %ntid.x;
  mov.u32 %b, %tid.x;
  mad.lo.s32 %i, %i, %t, %b;
  ld.param.u32 %n, [n];
  setp.ge.s32 %out, %i, %n;
  @%out bra END;
  ld.param.u64 %at, [p];
  ld.param.u32 %b, [by];
  mul.wide.s32 %o, %i, 4;
  add.s64 %at, %at, %o;
  ld.global.u32 %v, [%at];
  add.s32 %v, %v, %b;
  st.global.u32 [%at], %v;
  mov.u64 %sum, total;
  red.global.add.u32 [%sum], %b;
END:
  ret;
}
)";
}

inline const std::string kHeader = ".version 8.0\n.target sm_80\n.address_size 64\n";

// The kernel `add`, the variables `total`, 5, and `weights`, four constants.
inline std::string adding_text() {
  return kHeader + ".visible .global .align 4 .u32 total = 5;\n" +
         ".visible .const .align 4 .b8 weights[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4};\n" +
         adding_kernel("add");
}

// The same with a managed `total`.
inline std::string managed_text() {
  return kHeader + ".visible .global .attribute(.managed) .align 4 .u32 total = 5;\n" +
         adding_kernel("add");
}

// The halves of adding_text(), as nvcc -rdc=true compiles them.
inline std::string linked_text() {
  return kHeader + ".extern .global .align 4 .u32 total;\n" + adding_kernel("add");
}
inline std::string linked_variable() {
  return kHeader + ".visible .global .align 4 .u32 total = 5;\n";
}

}  // namespace sim::tests
