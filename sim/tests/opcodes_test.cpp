// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every spelling that compilers are known to emit, and every other one listed, decodes with its
// operands; and forms of operands and of texts that must be read.
#include <doctest/doctest.h>

#include <fstream>
#include <set>
#include <string>

#include "sim/ptx/module.h"

using namespace sim;

namespace {

std::string around(const std::string& statement) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.func f { ret; }\n"
         ".visible .entry k(.param .align 16 .b8 p[64]) {\n"
         ".reg .pred %p<9>; .reg .b16 %h<32>; .reg .b32 %r<32>; .reg .b64 %d<32>; .reg .b128 "
         "%x<9>;\n"
         "TABLE: .branchtargets END, END;\n@%p8 " +
         statement + ";\nEND: ret;\n}\n";
}

std::string refusal(const std::string& text) {
  std::string log;
  return Module::parse(text, &log) ? "" : log;
}

}  // namespace

TEST_CASE("every spelling of the list decodes") {
  std::ifstream file(SIM_OPCODES);
  std::set<std::string> spellings;
  for (std::string line; std::getline(file, line);) {
    CAPTURE(line);
    CHECK(refusal(around(line)) == "");
    spellings.insert(line.substr(0, line.find(' ')));
  }
  CHECK(spellings.size() >= 1600);
}

TEST_CASE("what stands in no PTX is refused") {
  for (const std::string line :
       {"ret.callee", "trap.assertion", "vprintf %r1, %d1, %d2", "trap %r1",
        "cvt.pack.sat.s8.s32.b32 %r1, %r2", "st.param.b32 [4], %r1",
        "mov.b128 {%d1, %d2}, {%d3, %d4}", "add.b128 %x1, %x2, %x3", "ld.v2.b128 {%x1, %x2}, [%d1]",
        "lop3.or.b32 %r1, %r2, %r3, %r4, 1, %p1", "atom.add.b128 %x1, [%d1], %x2", "call g"}) {
    CAPTURE(line);
    CHECK(refusal(around(line)).find("line 8: ") == 0);
  }
}
