// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the reader of NVRTC's log: figures of the kernel, and what ptxas remarks, with
// lines of several releases, hostile text, and units that the real compiler finds fault with.
#include "codegen/compile_log.h"

#include <doctest/doctest.h>

#include <random>

#include "codegen/base/text.h"
#include "codegen/nvrtc.h"
#include "tests/codegen/slow_wgmma.h"

using namespace lathe;

namespace {

// Registers, barriers, static shared memory, stack, spill stores and spill loads.
std::array<int, 6> figures_of(const std::string& log) {
  const CompileReport report = parse_compile_log(log);
  return {report.registers,   report.barriers,     report.smem_static,
          report.stack_bytes, report.spill_stores, report.spill_loads};
}

std::vector<Remark> remarks_of(const std::string& log) {
  const CompileReport report = parse_compile_log(log);
  REQUIRE(report.remarks.has_value());
  return *report.remarks;
}

std::vector<std::string> codes_of(const std::vector<Remark>& remarks) {
  std::vector<std::string> codes;
  for (const Remark& remark : remarks) codes.push_back(remark.code);
  return codes;
}

using Codes = std::vector<std::string>;

constexpr char kEntry[] =
    "ptxas info    : Compiling entry function 'entry' for 'sm_90a'\n"
    "ptxas info    : Function properties for entry\n";

}  // namespace

TEST_CASE("log of one kernel") {
  const auto found = figures_of(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'entry' for 'sm_90a'\n"
      "ptxas info    : Function properties for entry\n"
      "    16 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
      "ptxas info    : Used 31 registers, used 1 barriers, 512 bytes smem, 8 bytes cumulative "
      "stack size\n"
      "ptxas info    : Compile time = 8.123 ms\n");
  CHECK(found == std::array{31, 1, 512, 16, 4, 12});
}

TEST_CASE("other functions of the unit are not the kernel") {
  const auto found = figures_of(
      "ptxas info    : Compiling entry function 'other' for 'sm_80'\n"
      "    32 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 200 registers\n"
      "ptxas info    : Compiling entry function 'entry' for 'sm_80'\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers, 380 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'entry2' for 'sm_80'\n"
      "ptxas info    : Used 99 registers\n");
  CHECK(found == std::array{8, 0, 0, 0, 0, 0});
}

TEST_CASE("logs that say nothing give -1, never a failure") {
  for (const char* log :
       {"", "\n\n\n", "Used many registers", "ptxas info    : Used 31 registers\n",
        "ptxas info : Compiling entry function 'entry' for 'sm_90a'\nUsed registers, bytes smem\n",
        "Compiling entry function 'entry'\nUsed 99999999999999999999 registers\n",
        "Compiling entry function 'entry'\nbytes stack frame, x bytes spill stores"}) {
    CAPTURE(log);
    const CompileReport report = parse_compile_log(log);
    CHECK(report.registers == -1);
    CHECK(report.stack_bytes == -1);
    CHECK(report.spill_stores == -1);
    CHECK(report.spill_loads == -1);
  }
}

TEST_CASE("NVRTC 13 begins every line with a name, and functions that are called count too") {
  const auto found = figures_of(
      text(kEntry,
           "ptxas         .     16 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n",
           "ptxas info    : Used 30 registers, used 0 barriers\n"
           "ptxas info    : Function properties for f\n"
           "ptxas         .     8 bytes stack frame, 8 bytes spill stores, 0 bytes spill loads\n"));
  CHECK(found == std::array{30, 0, 0, 16, 12, 12});
}

TEST_CASE("remarks of NVRTC 12") {
  const auto found = remarks_of(text(
      "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to "
      "determine register count at entry.\n"
      "ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to non wgmma instructions defining accumulator registers in the function "
      "'entry'\n"
      "ptxas entry.ptx, line 49; info    : (C7519) warpgroup.arrive is injected\n"
      "ptxas info    : Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
      "ptxas info    : 0 bytes gmem\n",
      kEntry, "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n",
      "ptxas info    : Used 168 registers, used 9 barriers\n"));
  CHECK(codes_of(found) == Codes{"C7508", "C7515", "C7519", ""});
  CHECK(found[0].text ==
        "Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at "
        "entry.");
  CHECK(found[2].text == "warpgroup.arrive is injected");
}

TEST_CASE("remarks of NVRTC 13: lines that differ in numbers are one remark") {
  std::string log;
  for (const int line : {42, 48, 54, 160}) {
    log += text("ptxas info    : (C7517) warpgroup.wait is injected in around line ", line,
                " by compiler to allow use of registers defined by GMMA in function 'entry'\n");
  }
  log +=
      "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized due to insufficient register resources for the wgmma pipeline in the function "
      "'entry'\n";
  const auto found = remarks_of(log + kEntry);
  REQUIRE(codes_of(found) == Codes{"C7517", "C7511"});
  CHECK(found[0].lines == 4);
  CHECK(found[0].text.find("around line 42 by") != std::string::npos);
  CHECK(found[1].lines == 1);
}

TEST_CASE("which remarks are losses") {
  for (int code = 7500; code < 7525; ++code) {
    CAPTURE(code);
    const bool loss = code == 7504 || (code >= 7508 && code <= 7516);
    CHECK(is_loss({text("C", code), "something"}) == loss);
    CHECK(is_loss({text("C", code), "Potential Performance Loss: something"}));
  }
  CHECK(is_loss({"", "Potential Performance Loss: something"}));
  for (const char* code : {"", "C", "Cabc", "C75110", "x7511x"}) CHECK_FALSE(is_loss({code, ""}));
}

TEST_CASE("losses are remarks, spills and a stack, and nothing that is not known") {
  CHECK(losses({}).empty());
  CompileReport report = parse_compile_log(
      text(kEntry, "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"));
  CHECK(losses(report).empty());
  report.remarks = std::vector{Remark{"C7517", "warpgroup.wait is injected"}};
  CHECK(losses(report).empty());
  report.spill_stores = 4, report.spill_loads = 12, report.stack_bytes = 8;
  report.remarks->push_back({"C7511", "Potential Performance Loss: serialized"});
  CHECK(losses(report) == std::vector<std::string>{"C7511 Potential Performance Loss: serialized",
                                                   "16 bytes of spills",
                                                   "a stack frame of 8 bytes"});
}

TEST_CASE("what the front end quotes is no word of ptxas") {
  CHECK(
      remarks_of("bias.cuh(1): warning #1105-D: #warning directive: ptxas info    : (C7510) fake\n"
                 "  ptxas info    : (C7510) Potential Performance Loss: fake\n"
                 "   ^\n"
                 "ptxas warning : Pragma 'ptxas\n"
                 "ptxas         . ptxas info : (C7510) Potential Performance Loss: fake\n"
                 "ptxas info : (C) x\nptxas info : (C7510 x\nptxas info : (D7510) x\n"
                 "ptxas info : C7510 x\nptxas (C7510) x\nptxas\nptxas : \nptxas info : \n")
          .empty());
  CHECK(figures_of(text("  ptxas info    : Compiling entry function 'entry' for 'sm_90a'\n"
                        "ptxas info    : Used 3 registers\n",
                        kEntry,
                        "ptxas info    : Used 30 registers\nx(1): warning\n"
                        "  64 bytes stack frame, 64 bytes spill stores, 64 bytes spill loads\n"))
            .front() == 30);
  CHECK(figures_of(text(kEntry, "x.cuh(1): warning\n    64 bytes stack frame\n"))[3] == -1);
}

TEST_CASE("a remark is a printable line of bounded length") {
  const auto found = remarks_of("ptxas info    : (C7510) Potential \x1b[31mred\t\xff\r" +
                                std::string(100'000, 'x') + "\n");
  REQUIRE(found.size() == 1);
  CHECK(found[0].text.starts_with("Potential \\x1b[31mred\\x09\\xff\\x0dxxx"));
  CHECK(found[0].text.ends_with("x..."));
  CHECK(found[0].text.size() < 300);
}

TEST_CASE("sums of spills end at the largest number") {
  std::string log = kEntry;
  for (int i = 0; i < 3; ++i) {
    log +=
        "ptxas . 2147483647 bytes stack frame, 2147483647 bytes spill stores, 2147483647 bytes "
        "spill loads\n";
  }
  const CompileReport report = parse_compile_log(log);
  CHECK(report.spill_stores == INT32_MAX);
  CHECK(losses(report) == std::vector<std::string>{"2147483647 bytes of spills",
                                                   "a stack frame of 2147483647 bytes"});
}

TEST_CASE("many notes do not hide a loss") {
  std::string log;
  for (int i = 0; i < 100; ++i)
    log += text("ptxas info : (C75", 17 + i % 3, ") ", std::string(i, 'a'), "\n");
  log += "ptxas info : (C7513) Potential Performance Loss: late\n";
  const auto found = remarks_of(log);
  CHECK(found.size() == kMostRemarks);
  CHECK(std::ranges::count(found, true, is_loss) == 1);
}

TEST_CASE("remarks survive as a line of text, whatever stood in the log") {
  std::mt19937 random(11);
  const std::string alphabet = "ab 1\t\r-?(C7511)\x01\xff\xc3\xa9'";
  for (int round = 0; round < 500; ++round) {
    std::string log;
    for (unsigned i = random() % 20; i > 0; --i) {
      log +=
          random() % 2 == 0 ? "ptxas info : (C7511) " : "ptxas info : Potential Performance Loss";
      for (unsigned n = random() % 400; n > 0; --n) log += alphabet[random() % alphabet.size()];
      log += '\n';
    }
    const auto found = remarks_of(log);
    const std::string kept = remarks_text(found);
    CAPTURE(kept);
    CHECK(kept.find('\n') == kept.npos);
    CHECK(remarks_in(kept) == found);
  }
  CHECK(remarks_text(std::nullopt) == "?");
  CHECK(remarks_text(std::vector<Remark>()).empty());
  for (const char* none :
       {"?", "C7511", "C7511 1", "C7511 x text", "C7511 -1 text", " 1 text", "\t",
        "C7511 99999999999 text", "C7511 1 text\tC7511", "C7x 1 text", "(C7511) 1 text"}) {
    CAPTURE(none);
    CHECK(remarks_in(none) == std::nullopt);
  }
  std::string many = "C7511 1 a";
  for (int i = 0; i < 100; ++i) many += "\tC7511 1 a";
  CHECK(remarks_in(many) == std::nullopt);
  CHECK(remarks_in("C7511 1 \x1b[31m")->front().text == "\\x1b[31m");
}

TEST_CASE("the real compiler says so where it serialises wgmma or ignores setmaxnreg") {
  const auto nvrtc = Compiler::open();
  if (!nvrtc.ok()) {
    MESSAGE("skipped, no compiler: ", nvrtc.status().text());
    return;
  }
  const struct {
    std::string unit;
    bool loss;
    const char* words;
  } cases[] = {
      {test::wgmma_unit({}), false, ""},
      {test::wgmma_unit({.touched = true}), true, "serialized"},
      {test::wgmma_unit({.more_registers = true}), false, ""},
      {test::wgmma_unit({.bounds = "", .more_registers = true}), true, "setmaxnreg"},
  };
  for (const auto& [unit, loss, words] : cases) {
    CAPTURE(unit);
    const auto compiled = (*nvrtc)->compile(unit, "sm_90a");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    const std::vector<std::string> found = losses(compiled->report);
    CHECK(found.empty() == !loss);
    if (!loss) CHECK(compiled->report.remarks->empty());
    if (loss) CHECK(comma_list(found).find(words) != std::string::npos);
    CHECK(compiled->report.spill_stores == 0);
    CHECK(compiled->report.registers > 0);
  }
}
