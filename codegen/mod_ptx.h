// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads PTX as a list of functions and their instructions: enough of it to see what each one
// touches.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

struct PtxInstruction {
  std::string_view opcode;    // "ld.global.nc.f32"
  std::string_view operands;  // "%f1, [%rd2+4]"
  bool marked = false;        // kPtxMark stands before it
};

struct PtxFunction {
  std::set<std::string_view> registers;  // declared: "%r" of "%r<5>", "%SP"
  std::vector<PtxInstruction> instructions;
};

// A comment that inline assembly of ours puts before an instruction. A mod has no assembly, and
// the compiler writes other comments.
inline constexpr std::string_view kPtxMark = "/*lathe*/";

struct Ptx {
  std::string code;  // what the views point into
  std::vector<PtxFunction> functions;
  std::set<std::string_view> constants;  // .const variables
  std::set<std::string_view> globals;    // .global variables
  std::string_view outside;              // the first declaration that is .extern
};

// Returns the name that `text` begins with: "table" of "table+4"; empty if there is none.
std::string_view ptx_name(std::string_view text);

// Whatever the text is: what is no PTX gives other functions, and no failure.
void read_ptx(std::string_view text, Ptx* out);

}  // namespace lathe
