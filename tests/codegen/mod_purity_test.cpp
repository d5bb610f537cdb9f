// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tests what the instructions of a probe do: labels, braces and lines hide nothing, and memory is
// judged by where its address comes from.
#include <doctest/doctest.h>

#include "codegen/mods.h"

using namespace lathe;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// Returns a probe with these lines, a table of the compiler's and one of the mod.
std::string ptx(const std::string& lines) {
  return "// st.global here\n.version 9.0\n.target sm_80\n.address_size 64\n"
         ".global .align 4 .b8 __cudart_i2opi_f[24] = {65, 144, 67};\n"
         ".const .align 4 .f32 table[2];\n.func (.param .b32 r) f\n(\n.param .b32 p\n)\n;\n"
         ".visible .entry entry(\n\t.param .b32 p\n)\n.maxntid 32, 1, 1\n{\n"
         "\t.local .align 8 .b8 \t__local_depot0[8];\n\t.reg .b64 \t%SP;\n\t.reg .b64 "
         "\t%SPL;\n\t.reg .pred \t%p<2>;\n\t.reg .f32 \t%f<4>;\n\t.reg .b32 \t%r<4>;\n\t.reg .b64 "
         "\t%rd<4>;\n$L1:\n\tld.param.f32 \t%f1, [p];\n" +
         lines + "\n\t/*lathe*/ st.weak.global.f32 [%rd1], %f1;\n\tret;\n}\n";
}

}  // namespace

TEST_CASE("impurity is read off the instructions") {
  for (const char* pure :
       {"", "\t@%p1 bra \t$L1;", "\t{ add.f32 %f1, %f2, %f3; }", "\tld.const.f32 \t%f1, [table];",
        "\tst.local.f32 \t[%SP+4], %f1;", "\tmov.u64 \t%SPL, __local_depot0;",
        "\tcall.uni (retval0), \n\t_Z6helperf, \n\t(\n\tparam0\n\t);", "\tsetp.lt.s32 %p1, %r1, 0;",
        ".global .align 4 .f32 _ZN16caller_score_mod4kCapE = 0f41F00000;",
        "\t{ .reg .b32 t; L2: mov.b32 t, 1; }", "\t.pragma \"nounroll\";",
        "\tmov.u64 %rd1, __cudart_i2opi_f;\n$L2:\n\tld.global.nc.u32 %r1, [%rd1+4];\n"
        "\tadd.s64 %rd1, %rd1, 4;\n\t@%p1 bra $L2;",
        "\tmov.u64 %rd1, table;\n\tmul.wide.s32 %rd2, %r1, 4;\n\tadd.s64 %rd3, %rd1, %rd2;\n"
        "\tld.const.f32 %f1, [%rd3];",
        "\tbrx.idx %r1, $LB;\n$LB: .branchtargets $L1, $L1;"}) {
    CAPTURE(pure);
    CHECK(impurity_of(ptx(pure)) == "");
  }
  const std::pair<const char*, const char*> impure[] = {
      {"\tst.global.f32 \t[%rd2], %f1;", "writes memory (st.global.f32)"},
      {"\t@%p1 st.f32 \t[%rd2], %f1;", "writes memory (st.f32)"},
      {"\tld.global.nc.f32 \t%f1, [%rd2];", "reads memory that is not captured"},
      {"\tld.global.f32 \t%f1, [_ZN16caller_score_mod1xE];", "keeps a variable in memory"},
      {"\tatom.global.add.u32 \t%r1, [%rd2], 1;", "atomic"},
      {"\tred.global.add.u32 \t[%rd2], 1;", "atomic"},
      // Behind a label, a brace, a predicate or another instruction, and over several lines.
      {"\t{ .reg .u32 t; L0: st.global.u32 [%rd1], 7; }", "writes memory (st.global.u32)"},
      {"\tmov.u32 %r1, %r2; st.global.u32 [%rd1], 7;", "writes memory (st.global.u32)"},
      {"L0:L1: { @ ! %p1 st.global.u32 [%rd1], 7; }", "writes memory (st.global.u32)"},
      {"\tst.global.u32\n\t[%rd1],\n7;", "writes memory (st.global.u32)"},
      {"\tmov.u32 %r1, 1; /* a */ { bar.sync 0; }", "barrier"},
      {"\tst.weak.global.u32 [%rd1], 7;", "writes memory (st.weak.global.u32)"},
      // The table is there, and the address is another one, or only sometimes the table's.
      {"\tld.global.nc.f32 %f1, [4660];", "reads memory that is not captured"},
      {"\tmov.u64 %rd1, __cudart_i2opi_f;\n\tld.global.u32 %r1, [%rd2];", "not captured"},
      {"\tmov.u64 %rd1, __cudart_i2opi_f;\n\t@%p1 mov.u64 %rd1, 4660;\n"
       "\tld.global.u32 %r1, [%rd1];",
       "not captured"},
      {"\tmov.u64 %rd1, __cudart_i2opi_f;\n\txor.b64 %rd2, %rd1, %rd3;\n"
       "\tld.global.u32 %r1, [%rd2];",
       "not captured"},
      {"\tld.const.f32 %f1, [%rd1];", "not captured"},
      {"\tmov.u64 %rd1, __cudart_i2opi_f;\n\tld.const.f32 %f1, [%rd1];", "not captured"},
      {"\tcall (retval0), %rd1, (param0), prototype_0;", "calls through a pointer"},
      {"\tcall.uni\n%rd1,\n(param0),\nprototype_0;", "calls through a pointer"},
      {"\tmov.u32 %r1, %pm0;", "(%pm0)"},
      {"\t{ .reg .b32 %tid; mov.u32 %r1, %tid.x; }", ""},  // its own, whatever it is called
      {"\tbar.sync \t0;", "barrier"},
      {"\tshfl.sync.bfly.b32 \t%r1, %r2, 1, 31, -1;", "other threads"},
      {"\tmov.u32 \t%r1, %tid.x;", "(%tid.x)"},
      {"\tmov.u64 \t%rd1, %clock64;", "(%clock64)"},
      {"\tmov.u32 \t%r1, %laneid;", "(%laneid)"},
      {"\ttrap;", "does more than compute (trap)"},
      {".extern .func (.param .b32 r) vprintf", "vprintf"}};
  for (const auto& [line, expected] : impure) {
    CAPTURE(line);
    CHECK(contains(impurity_of(ptx(line)), expected));
  }
}
