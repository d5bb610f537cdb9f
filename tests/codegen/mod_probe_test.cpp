// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tests what a mod may be by the compiler's word, and by the PTX of its probe.
#include <doctest/doctest.h>

#include "tests/codegen/score_mods.h"

using namespace lathe;
using namespace score_mods;

namespace {

std::string probe(const Compiler& compiler, const Mod& mod, std::vector<Mod> others = {}) {
  AttentionProblem problem = problem_with(std::move(others));
  problem.mods.push_back(mod);
  problem.captures[1] = Dtype::f16, problem.captures[2] = Dtype::f32;
  const KernelSpec spec =
      *kernel_problems::forward_kernels(problem, *facts_of_arch("sm_80"))->kernel;
  const Status status = probe_mod(mod_probe_spec(spec, mod), compiler, "sm_80");
  CHECK((status.ok() || status.code() == Code::invalid_argument));
  return status.text();
}

// Null, and a word about it, where there is none.
std::shared_ptr<const Compiler> open_compiler() {
  const auto opened = Compiler::open();
  if (opened.ok()) return *opened;
  MESSAGE("skipped, no compiler: ", opened.status().text());
  return nullptr;
}

}  // namespace

TEST_CASE("a probe takes pure functions and says what is wrong with others") {
  const auto opened = open_compiler();
  if (!opened) return;
  const Compiler& compiler = *opened;
  for (const std::string& good :
       {std::string("constexpr int kA = 3; const float kB = 2;\n#define TWICE(x) (2 * (x))\n"
                    "static __device__ __noinline__ float helper(float x) { return tanhf(x); }\n") +
            body("return q_idx > kA ? minus_infinity() : TWICE(helper(score)) + kB;"),
        "__constant__ const float table[4] = {1, 2, 3, 4};\n" +
            body("float own[3] = {1, 2, 3}; return score + table[head & 3] + own[q_idx % 3];"),
        body("return sinf(score) + expf(score) + powf(score, 1.5f) + softcap(alibi(score, 1, 2), "
             "3);"),
        body("float s, c; sincosf(score * 1e9f, &s, &c); return s + c + tanf(score * 1e9f) + "
             "(float)(sin((double)score) + cos(1e9 * score) + tan((double)score) + "
             "lgamma((double)score) + j0(score) + erfinv((double)score)) + normcdfinvf(score);"),
        "__constant__ int a[4] = {1, 2, 3, 4}, b[4] = {4, 3, 2, 1};\n" +
            body("const int* t = head ? a : b; return score + a[q_idx & 3] + b[kv_idx & 3];"),
        "template <int kN> __device__ float times(float x) { return kN * x; }\n" +
            body("return times<3>(score);"),
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
      {body("return score + sinf(score * 1e9f) + __ldg((const float*)0x1234ull);"),
       "reads memory that is not captured"},
      {body("return ((float (*)(float))0x1234ull)(score);"), "calls through a pointer"},
      {body("__attribute__((shared)) float s; s = score; __syncthreads(); return s;"), "("},
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
  const Mod mask = {"mask_mod", "m.cuh",
                    "__device__ int mask_mod(int, int, int, int) { return 1; }"};
  CHECK(contains(probe(compiler, mask),
                 "option mask_mod: m.cuh must define __device__ bool mask_mod"));
}

TEST_CASE("what surrounds a mod in its probe does not tell it from a kernel") {
  const auto opened = open_compiler();
  if (!opened) return;
  const std::string evil = "*(volatile float*)0x1234ull = 9.0f;";
  const auto captures = [](const std::string& text) {
    return "__device__ float score_mod(float x, int b, int h, int q, int k, const Captures& c) {" +
           text + "}\n";
  };
  // Each does something in a kernel that a compiler may prove, of too simple a probe, not to
  // happen.
  const std::string texts[] = {
      captures("float a = c.get<2>(q); if (a != a) " + evil + " return x;"),
      captures("float a = c.get<2>(q); if (a != (float)(int)a) " + evil + " return x;"),
      captures("if (c.get<2>(q) != c.get<1>(q)) " + evil + " return x;"),
      captures("if (c.get<2>(5) != 5.0f) " + evil + " return x;"),
      captures("if (c.get<2>(q) != c.get<2>(q + (1ll << 32))) " + evil + " return x;"),
      body("return score + q_idx;") +
          "__device__ float score_mod_bwd(float dscore, float score, int, int, int q_idx, int) {"
          "  if (dscore != score_mod(score, 0, 0, q_idx, 0)) " +
          evil + " return dscore; }\n",
      body("return (float)q_idx;") +
          "__device__ float score_mod_bwd(float dscore, float, int, int, int q_idx, int) {"
          "  if (dscore != (float)q_idx) " +
          evil + " return dscore; }\n",
      body("if (threadIdx.x >= 32) " + evil + " return score;"),
      // A text that leaves its namespace could say something of the templates.
      body("return score;") + "} __device__ float helper() { return 1.0f; } namespace other {\n",
      body("return score;") +
          "} } __device__ float helper() { return 1.0f; } namespace caller_score_mod { "
          "namespace other {\n",
      "#define FIRST(a, b) a\n#define SECOND(a, b) b\n" + body("return score;") +
          "SECOND({, }) namespace other FIRST({, })\n",
  };
  for (const std::string& text : texts) {
    CAPTURE(text);
    const Mod mod = score_mod(text);
    CHECK(check_mod_text(mod).text() == "");
    const std::string found = probe(*opened, mod);
    CAPTURE(found);
    CHECK(contains(found, "option score_mod: dir/mine.cuh "));
    CHECK((contains(found, "writes memory") || contains(found, "depends on the thread") ||
           contains(found, "every_brace_is_closed")));
  }
  const Mod mask = {"mask_mod", "m.cuh",
                    "__device__ bool mask_mod(int, int, int, int) { return true; }\n"
                    "__device__ int mask_tile(int, int, int q0, int q1, int, int) {"
                    "  if (q1 != q0 + 1) " +
                        evil + " return 1; }\n"};
  CHECK(contains(probe(*opened, mask), "option mask_mod: m.cuh writes memory"));
}

TEST_CASE("a mod finds nothing that is declared behind it") {
  const auto opened = open_compiler();
  if (!opened) return;
  // Functions are found with the namespaces of their arguments where a template is used, and that
  // is behind the headers of the kernel. Each of these looks for one that only the probe has.
  const std::string looks =
      "struct Yes {};\n"
      "template <class T> __device__ Yes any_value(T, Yes = Yes());\n"
      "template <class T> __device__ Yes mod_probe(const T&, Yes = Yes());\n"
      "template <class T> __device__ Yes entry(const T&, Yes = Yes());\n"
      "template <class A, class B> struct Is { static constexpr bool v = false; };\n"
      "template <class A> struct Is<A, A> { static constexpr bool v = true; };\n"
      "struct Any : float4 { template <class T> __device__ operator T() const; };\n";
  const std::string given[] = {"c", "Any()", "decltype(mask_tile())()", "float4()"};
  for (const std::string& what : given) {
    for (const std::string name : {"any_value", "mod_probe", "entry"}) {
      const std::string text =
          looks +
          "template <class C> __device__ float score_mod(float x, int, int, int, int, const C& c) {"
          "  if constexpr (Is<decltype(" +
          name + "(" + what +
          ")), Yes>::v) return x;"
          "  else { *(volatile float*)0x1234ull = 9.0f; return x; } }\n";
      CAPTURE(text);
      CHECK(check_mod_text(score_mod(text)).text() == "");
      CHECK(probe(*opened, score_mod(text)) == "");  // the branch that a kernel takes, too
    }
  }
}

TEST_CASE("a probe tells the compiler's words, not what followed from them") {
  const auto opened = open_compiler();
  if (!opened) return;
  const std::pair<std::string, std::string> cases[] = {
      {"#define __device__ __host__\n" + body("return score;"),
       "does not compile\ndir/mine.cuh(1): error: incompatible redefinition of macro"},
      {"\n#undef __device__\n#define __device__ __host__\n" + body("return score;"),
       "dir/mine.cuh(2): catastrophic error: #error directive: __device__ is a macro of the"},
      {"\n__device__ flaot score_mod(float x, int, int, int, int) { return x; }",
       "does not compile\ndir/mine.cuh(2): error: "},
      {"__device__ float score_mod(float x, int, int, int, int y) { return x; ",
       "does not compile"},
      {"__device__ float score_mod(float x) { return x; }", "must define __device__ float"},
  };
  for (const auto& [text, expected] : cases) {
    CAPTURE(text);
    const std::string found = probe(*opened, score_mod(text));
    CAPTURE(found);
    CHECK(contains(found, expected));
  }
  // The other text does not have what one defines.
  const Mod mask = {
      "mask_mod", "m.cuh",
      "#define NEAR 4\n__device__ bool mask_mod(int, int, int, int) { return NEAR; }"};
  CHECK(contains(probe(*opened, score_mod(body("return NEAR;")), {mask}), "\"NEAR\" is undefined"));
  // A name that is taken already, and one that only may be.
  CHECK(
      probe(*opened, score_mod("#ifndef NULL\n#define NULL 7\n#endif\n#ifndef INF\n#define INF 1\n"
                               "#endif\n" +
                               body("return NULL ? 7 : INF;"))) == "");
  CHECK(probe(*opened, score_mod("#define NEAR 5\n" + body("return NEAR;")), {mask}) == "");
}
