// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tests what a mod may be by its text, what the compiler is given for it, and that its bytes,
// never its place, are in what names a kernel.
#include "codegen/mods.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "codegen/source.h"
#include "tests/codegen/score_mods.h"

using namespace lathe;
using namespace score_mods;

TEST_CASE("texts are refused by their tokens, with file and line") {
  for (const std::string& good : {
           body("return score;"),
           std::string("// #include <x>, asm\n/* asm */ const char* s = \"asm\", t = '#';"),
           std::string("int basm = 1'000, asm_ = 2; // don't ## \xc3\xa9"),
           std::string("#define TWO(x) \\\n  (2 * (x))\r\n#if defined(TWO) && 1 // \"\n#else\n"
                       "#endif\n#\n#pragma unroll 4\n#pragma nounroll\n#undef TWO\nint i;"),
           std::string("#define A \\\r\n 1\r\nint a = A;\r\n"),
           std::string("template <int kN> __device__ int f(float x = 1.e+5f) { return kN; }"),
       }) {
    CAPTURE(good);
    const Status status = check_mod_text(score_mod(good));
    CHECK(status.text() == "");
  }
  const std::pair<std::string, const char*> bad[] = {
      {"", " is empty"},
      {"  // nothing\n/* either */", " is empty"},
      {std::string("a\0b", 3), " has a zero byte"},
      {std::string(kMostModBytes + 1, 'x'), " has 262145 bytes; allowed are 1 to 262144"},
      {"int a;\n// \xe9", "(2): a mod is UTF-8"},
      {"\xef\xbb\xbfint a;", "(1): a mod has no byte order mark"},
      {"\n\nvoid f() { asm(\"\"); }", "(3): a mod has no inline assembly"},
      {"void f() { __asm__(\"\"); }", "(1): a mod has no inline assembly"},
      {"void f() { a\\\nsm(\"\"); }", "(1): a mod has no inline assembly"},
      {"#if 0\nasm\n#endif", "(2): a mod has no inline assembly"},
      {"__device__ float f() {\n  __shared__ float s;", "(2): a mod has neither shared memory"},
      {"#define J(a, b) a##b\n", "(1): a mod joins no words by ##"},
      {"#define J(a, b) a %:%: b\n", "(1): a mod joins no words by ##"},
      {"#define J(a, b) a #\\\n# b\n", "(1): a mod joins no words by ##"},
      {"const char* s = R\"(\n)\";", "(1): a mod has no raw strings"},
      {"const char* s = u8R\"x(\n)x\";", "(1): a mod has no raw strings"},
      {"int a = 'b;\n", "(1): a mod ends each literal in its line"},
      {"int a;\n/* b", "(2): a mod ends the comments that it begins"},
      {"int \\u0061sm;", "(1): a mod has a backslash only in literals"},
      {"int a; // b \\ \n#include \"c\"", "(1): a mod has no blanks after a backslash"},
      {"int a; // b \\", "(1): a mod does not end in a backslash"},
      {"int a; // b?\?/\n#include \"c\"", "(1): a mod has no trigraphs"},
      {"?\?=include \"c\"", "(1): a mod has no trigraphs"},
      {"#if 1\nint a;", "(2): a mod ends each #if with an #endif"},
      {"int a;\n#endif\n#if 1", "(2): a mod has no #endif without an #if before it"},
      {"#undef __device__\n", "(1): a mod undefines only macros of its own"},
      {"#pragma once\n", "(1): a mod has no pragmas but"},
      {"_Pragma(\"once\")\n", "(1): a mod has no pragmas but"},
      {"#line 7 \"a\"\n", "(1): a mod has no #line; allowed are define,"},
      {"int a;\n# 7 \"a\"\n", "(2): a mod has no #7; allowed are define,"},
      {"extern \"C\" int a;", "(1): a mod has nothing extern"},
      {"int a = ::lathe::b;", "(1): a mod names nothing of namespace lathe"},
      {"#ifdef lathe_had_A\n#endif", "(1): a mod names nothing of namespace lathe"},
      {"int a = __builtin_constant_p(1);", "(1): a mod has no __builtin_constant_p"},
      {"const char* s = __TIME__;", "(1): a mod has no time"},
      {"const char* s = __DA\\\nTE__;", "(1): a mod has no time"},
  };
  for (const auto& [text, expected] : bad) {
    CAPTURE(text);
    const Status status = check_mod_text(score_mod(text));
    CAPTURE(status.text());
    CHECK(status.code() == Code::invalid_argument);
    CHECK(contains(status.text(), std::string("option score_mod: dir/mine.cuh") + expected));
  }
}

TEST_CASE("no spelling of a directive that opens a file is taken") {
  for (const char* opening :
       {"#include <cmath>", "#\\\ninclude \"a\"", "#inc\\\r\nlude \"a\"", "%:include \"a\"",
        "%\\\n:include \"a\"", "\v\f # include_next \"a\"", "/*\n*/ # /* b */ include \"a\"",
        "/*a*/%:/**/include MACRO", "int a = L'\"';\n#include \"a\"\nint b = L'\"';",
        "int a = 1'0;\n#include \"a\"\n// '", "#import \"a\"", "#embed \"a\"",
        "#if __has_include(\"a\")\n#endif", "#define ASK __has_include_next\n",
        "#if __has_\\\nembed(\"a\")\n#endif"}) {
    CAPTURE(opening);
    const Status status = check_mod_text(score_mod("int before;\n" + std::string(opening)));
    CHECK(status.code() == Code::invalid_argument);
    CHECK((contains(status.text(), "): a mod includes nothing") ||
           contains(status.text(), "): a mod asks for no file")));
  }
}

TEST_CASE("the compiler is given the text, the end of its macros and the end of its namespace") {
  const Mod mod = score_mod("\n#undef B\n#define A(x) x\n#define B 1\nint a = A(B);");
  CHECK(check_mod_text(mod).text() == "");
  const std::string own = mod.digest().substr(0, 32);
  CHECK(mod_header_text(mod) ==
        "#pragma nv_diag_error 47\n#ifdef A\n#define lathe_had_A\n#endif\n#ifdef B\n#line 2 "
        "\"caller/score_mod.cuh\"\n#error B is a macro of the compiler\n#endif\ninline namespace "
        "text_" +
            own + " {\nstruct every_brace_is_closed_" + own +
            ";\n#line 1 \"caller/score_mod.cuh\"\n" + mod.text +
            "\n#pragma nv_diag_default 47\n#ifndef lathe_had_A\n#undef A\n#endif\n#undef "
            "lathe_had_A\n"
            "#undef B\nstruct every_brace_is_closed_" +
            own + " {};\n}\nstatic_assert(sizeof(text_" + own + "::every_brace_is_closed_" + own +
            ") == 1, \"\");\n");
}

TEST_CASE("identifiers are found as whole words of the code") {
  int line = 0;
  CHECK(mod_mentions("// no\nfloat score_mod_bwd(", "score_mod_bwd", &line));
  CHECK(line == 2);
  CHECK_FALSE(mod_mentions("// score_mod_bwd\nfloat score_mod(", "score_mod_bwd"));
  CHECK_FALSE(mod_mentions("my_score_mod_bwd2", "score_mod_bwd"));
  CHECK_FALSE(mod_mentions("/* score_mod_bwd", "score_mod_bwd"));
}

TEST_CASE("the bytes of a mod name a kernel, its file does not; the units stay short") {
  const DeviceFacts facts = *facts_of_arch("sm_80");
  const std::string mask_text = "__device__ bool mask_mod(int, int, int, int) { return true; }";
  AttentionProblem problem = problem_with({score_mod("a"), {"mask_mod", "m", mask_text}});
  problem.captures = {Dtype::f32, Dtype::f16, Dtype::i32, Dtype::i64};
  const KernelSpec spec = *kernel_problems::forward_kernels(problem, facts)->kernel;
  CHECK(contains(spec.text(),
                 " listed=1 capture_0=f32 capture_1=f16 capture_2=i32 capture_3=i64 "
                 "mask_mod="));
  problem.mods[0].file = "elsewhere.cuh";
  const KernelSpec moved = *kernel_problems::forward_kernels(problem, facts)->kernel;
  CHECK(moved.text() == spec.text());
  CHECK(emit_unit(moved, "sm_80") == emit_unit(spec, "sm_80"));
  problem.mods[0].text = "b";
  CHECK(kernel_problems::forward_kernels(problem, facts)->kernel->text() != spec.text());
  const auto kernels = kernel_problems::forward_kernels(problem, facts);
  const auto backward = kernel_problems::backward_kernels(problem, facts, {true, true});
  for (const KernelSpec& each : {*kernels->kernel, *kernels->mask_blocks, *backward->mask_queries,
                                 *backward->together, *backward->apart}) {
    const std::string unit = emit_unit(each, "sm_80");
    CAPTURE(unit);
    CHECK(std::count(unit.begin(), unit.end(), '\n') <= 40);
  }
  // The makers of lists read no score.
  CHECK_FALSE(contains(kernels->mask_blocks->text(), "score_mod"));
}
