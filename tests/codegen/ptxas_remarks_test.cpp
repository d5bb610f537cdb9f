// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests provoke what ptxas remarks about wgmma, setmaxnreg, spills and stack, one unit for
// each code, with every NVRTC that is found. No unit was found for C7512, C7515 and C7516.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "abi/nvrtc.h"
#include "codegen/base/text.h"
#include "codegen/compile_log.h"
#include "codegen/nvrtc.h"

using namespace lathe;

namespace {

const char* const kFence = "asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n";
const char* const kCommit = "asm volatile(\"wgmma.commit_group.sync.aligned;\" ::: \"memory\");\n";
const char* const kWait = "asm volatile(\"wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n";

std::string list_of(int count, const char* each) {
  std::string all;
  for (int k = 0; k < count; ++k) {
    if (k) all += ", ";
    for (const char c : std::string(each)) all += c == '#' ? std::to_string(k) : std::string(1, c);
  }
  return all;
}

// d += A * B with A in shared memory, or in the registers x.
std::string product(int n, bool registers = false) {
  const int sums = n / 2;
  const std::string after = registers ? text("{%", sums, ", %", sums + 1, ", %", sums + 2, ", %",
                                             sums + 3, "}, %", sums + 4, ", 1, 1, 1, 0;")
                                      : text("%", sums, ", %", sums + 1, ", 1, 1, 1, 0, 0;");
  return text("asm volatile(\"wgmma.mma_async.sync.aligned.m64n", n, "k16.f32.bf16.bf16 {",
              list_of(sums, "%#"), "}, ", after, "\" : ", list_of(sums, "\"+f\"(d[#])"), " : ",
              registers ? list_of(4, "\"r\"(x[#])") : "\"l\"(a)", ", \"l\"(b));\n");
}

struct Unit {
  std::string body;
  int n = 8;
  std::string bounds = "__launch_bounds__(128, 1)";
  std::string before;  // the kernel

  std::string source() const {
    const int sums = n / 2;
    return text(
        before, "extern \"C\" __global__ void ", bounds,
        " entry(float* out, unsigned long long a, unsigned long long b, unsigned* in, int m) "
        "{\n  float d[",
        sums, "];\n  unsigned x[4] = {in[0], in[1], in[2], in[3]};\n  for (int i = 0; i < ", sums,
        "; ++i) d[i] = out[i];\n", body, "  for (int i = 0; i < ", sums,
        "; ++i) out[threadIdx.x * ", sums, " + i] = d[i] + x[0];\n}\n");
  }
};

std::string loop(const std::string& body) {
  return "for (int i = 0; i < m; ++i) {\n" + body + "}\n";
}
std::string take(const char* how, int registers) {
  return text("asm volatile(\"setmaxnreg.", how, ".sync.aligned.u32 ", registers, ";\");\n");
}

// Every compiler that is found: the one that lathe takes, and those of either CUDA release.
std::vector<std::shared_ptr<const Compiler>> compilers() {
  std::vector<std::shared_ptr<const Compiler>> all;
  for (const std::string name : {"", "libnvrtc.so.13", "libnvrtc.so.12"}) {
    const auto opened = Compiler::open(name);
    if (!opened.ok()) {
      MESSAGE("without ", name.empty() ? "any compiler" : name, ": ", opened.status().text());
      continue;
    }
    const bool known = std::ranges::any_of(
        all, [&](const auto& one) { return one->identity() == (*opened)->identity(); });
    if (!known) all.push_back(*opened);
  }
  return all;
}

// Opens what the library itself opens by bare name, which only the system's folders answer.
void hold_builtins(const std::filesystem::path& library) {
  for (const auto& file : std::filesystem::directory_iterator(library.parent_path())) {
    if (!file.path().filename().string().starts_with("libnvrtc-builtins.so.")) continue;
    CHECK(dlopen(file.path().c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr);
  }
}

// The log of a compile with flags that lathe does not use.
std::string log_of(const Compiler& compiler, const std::string& unit, const char* flag) {
  void* const library = dlopen(compiler.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  hold_builtins(std::filesystem::canonical(compiler.path()));
  auto call = [&](const char* name) { return dlsym(library, name); };
  nvrtcProgram program = nullptr;
  reinterpret_cast<decltype(&nvrtcCreateProgram)>(call("nvrtcCreateProgram"))(
      &program, unit.c_str(), "unit.cu", 0, nullptr, nullptr);
  const char* options[] = {"--gpu-architecture=sm_90a", "--ptxas-options=-v", flag};
  reinterpret_cast<decltype(&nvrtcCompileProgram)>(call("nvrtcCompileProgram"))(program, 3,
                                                                                options);
  size_t bytes = 0;
  reinterpret_cast<decltype(&nvrtcGetProgramLogSize)>(call("nvrtcGetProgramLogSize"))(program,
                                                                                      &bytes);
  std::string log(bytes, '\0');
  reinterpret_cast<decltype(&nvrtcGetProgramLog)>(call("nvrtcGetProgramLog"))(program, log.data());
  reinterpret_cast<decltype(&nvrtcDestroyProgram)>(call("nvrtcDestroyProgram"))(&program);
  return log;
}

// The report has the code, and names it among the losses if it is one.
void check_code(const CompileReport& report, const std::string& code, bool loss) {
  CAPTURE(code);
  REQUIRE(report.remarks.has_value());
  const auto found = std::ranges::find(*report.remarks, code, &Remark::code);
  REQUIRE(found != report.remarks->end());
  CHECK(is_loss(*found) == loss);
  const auto lost = losses(report);
  CHECK(loss == std::ranges::any_of(lost, [&](const auto& l) { return l.starts_with(code); }));
}

}  // namespace

TEST_CASE("a unit for each remark that lathe's own flags can bring") {
  const std::string issue = kFence + product(8) + kCommit;
  const struct {
    const char* code;
    bool loss;
    Unit unit;
  } cases[] = {
      {"C7506", true, {take("inc", 240) + "((void (*)(int))a)(m);\n"}},
      {"C7507",
       true,
       {"if (threadIdx.x < 128) {\n" + take("dec", 24) + kFence + product(128) + kCommit + kWait +
            "} else {\n" + take("inc", 240) + "  out[3] = m;\n}\n",
        128, "__launch_bounds__(256, 1)"}},
      {"C7508", true, {take("inc", 240), 8, ""}},
      {"C7510",
       true,
       {loop(issue + kWait + "printf(\"%d\", i);\n"), 8, "__launch_bounds__(128, 1)",
        "extern \"C\" __device__ int printf(const char*, ...);\n"}},
      {"C7511", true, {loop(issue + "d[1] = out[i];\n" + kWait)}},
      {"C7513",
       true,
       {kFence +
            loop(kFence + product(64, true) + kCommit +
                 "for (int k = 0; k < 4; ++k) x[k] = in[i * 4 + k];\n"
                 "asm volatile(\"wgmma.wait_group.sync.aligned 1;\" ::: \"memory\");\n") +
            kWait,
        64}},
      {"C7514", true, {loop(issue + "out[i * 128 + threadIdx.x] = d[0];\n" + kWait)}},
      {"C7517", false, {loop(issue)}},
      {"C7518", true, {"if (threadIdx.x > in[3]) {\n" + issue + "out[9] = d[1];\n}\n"}},
      {"C7519", false, {loop(product(8) + kCommit + kWait)}},
      {"C7520",
       true,
       {loop("if (in[i] > threadIdx.x) {\n" + product(8) + kCommit + kWait + "}\n")}},
  };
  for (const auto& compiler : compilers()) {
    CAPTURE(compiler->identity());
    for (const auto& one : cases) {
      CAPTURE(one.code);
      const auto compiled = compiler->compile(one.unit.source(), "sm_90a");
      REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
      check_code(compiled->report, one.code, one.loss);
    }
    const auto good = compiler->compile(Unit{loop(issue + kWait)}.source(), "sm_90a");
    REQUIRE(good.ok());
    CHECK(good->report.remarks->empty());
    CHECK(losses(good->report).empty());
  }
}

TEST_CASE("remarks that take other flags: debugging, and units that are linked") {
  const std::string issue = kFence + product(8) + kCommit + kWait;
  const std::string outside = "extern \"C\" __device__ void g(int);\n";
  const struct {
    const char* code;
    const char* flag;
    Unit unit;
  } cases[] = {
      {"C7504", "-rdc=true", {take("inc", 240)}},
      {"C7505", "-G", {take("inc", 240)}},
      {"C7509", "-rdc=true", {loop(issue + "g(i);\n"), 8, "__launch_bounds__(128, 1)", outside}},
  };
  for (const auto& compiler : compilers()) {
    CAPTURE(compiler->identity());
    for (const auto& one : cases) {
      check_code(parse_compile_log(log_of(*compiler, one.unit.source(), one.flag)), one.code, true);
    }
  }
}

TEST_CASE("spills and stack are read, and are losses") {
  const std::string fill = "float q[200];\nfor (int i = 0; i < 200; ++i) q[i] = out[i * m];\n";
  const Unit spills = {
      fill +
          loop("for (int k = 0; k < 200; ++k) q[k] = q[k] * q[(k + 7) % 200] + q[(k "
               "+ i) % 3];\n") +
          "for (int i = 0; i < 200; ++i) out[i + m] = q[i];\n",
      8, "__launch_bounds__(1024, 1)"};
  const Unit stack = {fill + loop("q[i * m & 63] += q[m + i * 3 & 63];\n") +
                      "out[m] = q[m & 63];\n"};
  for (const auto& compiler : compilers()) {
    CAPTURE(compiler->identity());
    const auto spilled = compiler->compile(spills.source(), "sm_90a");
    REQUIRE(spilled.ok());
    CHECK(spilled->report.spill_stores > 0);
    CHECK(spilled->report.spill_loads > 0);
    CHECK(comma_list(losses(spilled->report)).find("bytes of spills") != std::string::npos);
    const auto stacked = compiler->compile(stack.source(), "sm_90a");
    REQUIRE(stacked.ok());
    CHECK(stacked->report.stack_bytes >= 256);
    CHECK(stacked->report.spill_stores == 0);
  }
}
