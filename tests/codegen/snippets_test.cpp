// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a snippet may be: by its text, by the compiler's word, and by the PTX of its probe; and that
// its bytes, never its place, are in what names a kernel.
#include "codegen/snippets.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "codegen/kernels/attention_backward.h"
#include "codegen/source.h"

using namespace lathe;

namespace {

Snippet score_mod(const std::string& text) { return {"score_mod", "dir/mine.cuh", text}; }

// `body` is that of a score_mod.
std::string body(const std::string& text) {
  return "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx) {" +
         text + "}\n";
}

AttentionProblem problem_with(std::vector<Snippet> snippets) {
  AttentionProblem problem;
  problem.forward = problem.backward = true;
  problem.head_dim = problem.value_dim = 64;
  problem.snippets = std::move(snippets);
  return problem;
}

std::string probe(const Compiler& compiler, const Snippet& snippet) {
  AttentionProblem problem = problem_with({snippet});
  problem.captures[1] = Dtype::f16;
  const KernelSpec spec = *attention_kernels(problem, *facts_of_arch("sm_80"))->forward;
  const Status status = probe_snippet(snippet_probe_spec(spec, snippet), compiler, "sm_80");
  CHECK((status.ok() || status.code() == Code::invalid_argument));
  return status.text();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("texts are refused by their tokens, with file and line") {
  CHECK(check_snippet_text(score_mod(body("return score;"))).ok());
  CHECK(check_snippet_text(score_mod("// #include <x>, asm\n/* asm */ const char* s = \"asm\";"))
            .ok());
  CHECK(check_snippet_text(score_mod("int basm = 1'000, asm_ = 2;")).ok());
  const auto refused = [](const std::string& text, const std::string& expected) {
    const Status status = check_snippet_text(score_mod(text));
    CAPTURE(status.text());
    CHECK(status.code() == Code::invalid_argument);
    CHECK(contains(status.text(), "option score_mod: dir/mine.cuh" + expected));
  };
  refused("", " is empty");
  refused("  // nothing\n/* either */", " is empty");
  refused("\n#include <cmath>\n", "(2): a snippet includes nothing");
  refused("/*\n*/ # include_next \"a\"", "(2): a snippet includes nothing");
  refused("\n\nvoid f() { asm(\"\"); }", "(3): a snippet has no inline assembly");
  refused("void f() { __asm__(\"\"); }", "(1): a snippet has no inline assembly");
  refused("__device__ float f() {\n  __shared__ float s;",
          "(2): a snippet has neither shared memory");
  refused(std::string("a\0b", 3), " has a zero byte");
  refused(std::string(kMostSnippetBytes + 1, 'x'), " has 262145 bytes; allowed are 1 to 262144");
}

TEST_CASE("identifiers are found as whole words of the code") {
  int line = 0;
  CHECK(snippet_mentions("// no\nfloat score_mod_bwd(", "score_mod_bwd", &line));
  CHECK(line == 2);
  CHECK_FALSE(snippet_mentions("// score_mod_bwd\nfloat score_mod(", "score_mod_bwd"));
  CHECK_FALSE(snippet_mentions("my_score_mod_bwd2", "score_mod_bwd"));
  CHECK_FALSE(snippet_mentions("/* score_mod_bwd", "score_mod_bwd"));
}

TEST_CASE("impurity is read off the instructions") {
  const auto ptx = [](const std::string& line) {
    return "// st.global here\n.visible .entry entry(\n\t.param .b32 p\n)\n{\n\t.reg .f32 "
           "\t%f<4>;\n$L1:\n"
           "\tld.param.f32 \t%f1, [p];\n" +
           line + "\n\tst.weak.global.f32 [%rd1], %f1;\n\tret;\n}\n";
  };
  for (const char* pure :
       {"", "\t@%p1 bra \t$L1;", "\t{ add.f32 %f1, %f2, %f3; }", "\tld.const.f32 \t%f1, [table];",
        "\tst.local.f32 \t[%SP+4], %f1;", "\tmov.u64 \t%SPL, __local_depot0;",
        "\tcall.uni (retval0), \n\t_Z6helperf, \n\t(\n\tparam0\n\t);", "\tsetp.lt.s32 %p1, %r1, 0;",
        ".global .align 4 .f32 _ZN17snippet_score_mod4kCapE = 0f41F00000;"}) {
    CAPTURE(pure);
    CHECK(impurity_of(ptx(pure)) == "");
  }
  const std::pair<const char*, const char*> impure[] = {
      {"\tst.global.f32 \t[%rd2], %f1;", "writes memory (st.global.f32)"},
      {"\t@%p1 st.f32 \t[%rd2], %f1;", "writes memory (st.f32)"},
      {"\tld.global.nc.f32 \t%f1, [%rd2];", "reads memory that is not captured"},
      {"\tld.global.f32 \t%f1, [_ZN17snippet_score_mod1xE];", "keeps a variable in memory"},
      {"\tatom.global.add.u32 \t%r1, [%rd2], 1;", "atomic"},
      {"\tred.global.add.u32 \t[%rd2], 1;", "atomic"},
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

TEST_CASE("a probe takes pure functions and says what is wrong with others") {
  const auto opened = Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  const Compiler& compiler = **opened;
  for (const std::string& good :
       {std::string("constexpr int kA = 3; const float kB = 2;\n#define TWICE(x) (2 * (x))\n"
                    "static __device__ __noinline__ float helper(float x) { return tanhf(x); }\n") +
            body("return q_idx > kA ? minus_infinity() : TWICE(helper(score)) + kB;"),
        "__constant__ const float table[4] = {1, 2, 3, 4};\n" +
            body("float own[3] = {1, 2, 3}; return score + table[head & 3] + own[q_idx % 3];"),
        body("return sinf(score) + expf(score) + powf(score, 1.5f) + softcap(alibi(score, 1, 2), "
             "3);"),
        std::string("__device__ float score_mod(float x, int, int, int q, int, const Captures& c) {"
                    "  return x + c.get<1>(q) + c.scalar(2) + c.scalar(q); }")}) {
    CAPTURE(good);
    CHECK(probe(compiler, score_mod(good)) == "");
  }
  const std::pair<std::string, std::string> bad[] = {
      {"\n\n" + body("return scor;"), "does not compile\ndir/mine.cuh(3): error: identifier"},
      {"float f(float x) { return x; }", "must define __device__ float score_mod(float score, int"},
      {"__device__ double score_mod(double x, int, int, int, int) { return x; }", "must define"},
      {"__device__ float score_mod(float x, int, int, int, long) { return x; }", "must define"},
      {body("return score;") + "__device__ float score_mod_bwd(float x) { return x; }",
       "must define score_mod_bwd, if at all, as"},
      {"__device__ float score_mod(float x, int, int, int q, int, const Captures& c) {"
       "  return x + c.get<0>(q); }",
       "that is not among the tensors capture_0 to capture_3"},
      {"__device__ float sum;\n" + body("return sum += score;"), "keeps a variable in memory"},
      {body("static int n = 0; return score + n++;"), "keeps a variable in memory"},
      {body("*(float*)(long long)q_idx = score; return score;"), "writes memory"},
      {body("return *(const float*)(long long)q_idx;"), "reads memory that is not captured"},
      {body("__syncthreads(); return score;"), "has a barrier"},
      {body("atomicAdd((int*)(long long)q_idx, 1); return score;"), "atomic"},
      {body("printf(\"%f\", score); return score;"), "calls what is not in it"},
      {body("return score + threadIdx.x;"), "depends on the thread or the machine (%tid.x)"}};
  for (const auto& [text, expected] : bad) {
    CAPTURE(text);
    const std::string found = probe(compiler, score_mod(text));
    CAPTURE(found);
    CHECK(contains(found, "option score_mod: dir/mine.cuh "));
    CHECK(contains(found, expected));
  }
  const Snippet mask = {"mask_mod", "m.cuh",
                        "__device__ int mask_mod(int, int, int, int) { return 1; }"};
  CHECK(contains(probe(compiler, mask),
                 "option mask_mod: m.cuh must define __device__ bool mask_mod"));
}

TEST_CASE("the bytes of a snippet name a kernel, its file does not; the units stay short") {
  const DeviceFacts facts = *facts_of_arch("sm_80");
  const std::string mask_text = "__device__ bool mask_mod(int, int, int, int) { return true; }";
  AttentionProblem problem = problem_with({score_mod("a"), {"mask_mod", "m", mask_text}});
  problem.captures = {Dtype::f32, Dtype::f16, Dtype::i32, Dtype::i64};
  const KernelSpec spec = *attention_kernels(problem, facts)->forward;
  CHECK(contains(spec.text(),
                 " listed=1 capture_0=f32 capture_1=f16 capture_2=i32 capture_3=i64 "
                 "score_mod="));
  problem.snippets[0].file = "elsewhere.cuh";
  const KernelSpec moved = *attention_kernels(problem, facts)->forward;
  CHECK(moved.text() == spec.text());
  CHECK(emit_unit(moved, "sm_80") == emit_unit(spec, "sm_80"));
  problem.snippets[0].text = "b";
  CHECK(attention_kernels(problem, facts)->forward->text() != spec.text());
  const auto kernels = *attention_kernels(problem, facts);
  const auto backward = *attention_backward_kernels(problem, facts, {true, true});
  for (const KernelSpec& each : {*kernels.forward, *kernels.mask_blocks, *backward.mask_queries,
                                 *backward.together, *backward.apart}) {
    const std::string unit = emit_unit(each, "sm_80");
    CAPTURE(unit);
    CHECK(std::count(unit.begin(), unit.end(), '\n') <= 40);
  }
  // The makers of lists read no score.
  CHECK_FALSE(contains(kernels.mask_blocks->text(), "score_mod"));
}
