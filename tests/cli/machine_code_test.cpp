// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover what `lathe dump --what sass` makes of a listing, and how it runs a program.
#include "api/cli/code/machine_code.h"

#include <doctest/doctest.h>

#include "api/cli/code/program.h"
#include "api/cli/failure.h"

using namespace lathe::cli;

namespace {

constexpr char kListing[] = R"(	.target	sm_90a
//--------------------- .text.entry               --------------------------
.text.entry:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   WARPGROUP.ARRIVE ;
        /*0020*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
        /*0030*/               @P0 HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0040*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0050*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
.L_x_1:
        /*0060*/              @!UP1 UTMALDG.2D [UR4], [UR6] ;
        /*0070*/                   LDSM.16.MT88.4 R4, [R2] ;
        /*0080*/              @!P1 LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64] ;
        /*0090*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00a0*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;
                                            /* 0x0000000000007918 */
        /*00b0*/                   { HMMA.16816.F32.BF16 R4, R4, R8, RZ  ;
        /*00c0*/                     LDL R5, [R1] ; }
        /*00d0*/                   STL.64 [R1], R4 ;
        /*00e0*/                   BRA `(.L_x_1);
        /*00f0*/                   NOP;
)";

}  // namespace

TEST_CASE("instructions are counted by their stems, and wgmma between waits") {
  const MachineCounts counts = count_machine_code(kListing);
  CHECK(counts.instructions == 15);
  const std::array<size_t, kCounted.size()> expected = {1, 3, 1, 1, 1, 1, 1, 1};
  CHECK(counts.of == expected);
  CHECK(counts.between_waits == std::vector<size_t>{2, 1});
  const std::string shown = counts_text(counts);
  CHECK(shown.find("// HGMMA         3; between waits (WARPGROUP.DEPBAR): 2, 1\n") != shown.npos);
  CHECK(shown.find("// HMMA          1\n") != shown.npos);
}

TEST_CASE("equal groups are told once, and not without end") {
  MachineCounts counts;
  counts.between_waits = {8, 8, 8, 4};
  CHECK(counts_text(counts).find(": 8 x3, 4\n") != std::string::npos);
  for (size_t i = 0; i < 1000; ++i) counts.between_waits.push_back(i % 7);
  const std::string shown = counts_text(counts);
  CHECK(shown.find(", ...\n") != shown.npos);
  CHECK(shown.size() < 700);
}

TEST_CASE("text that is no listing has no instructions") {
  for (const char* text : {"", "\n\n", "HMMA R1 ;", "/**/ HMMA", "/*0010 HMMA", "/*00zz*/ HMMA",
                           "/*0010*/", "/*0010*/ @P0", "/*0010*/ ;", "/*0010*/ { "}) {
    CAPTURE(text);
    CHECK(count_machine_code(text).instructions == 0);
  }
}

TEST_CASE("a program gets its words as they are, and gives both of its outputs") {
  const ProgramResult result =
      run_program("/bin/sh", {"-c", "echo \"$1\"; echo told >&2; cat", "sh", "a b; $HOME \"c\""});
  CHECK(result.out == "a b; $HOME \"c\"\n");
  CHECK(result.errors == "told\n");
  CHECK(result.problem == "");
  const ProgramResult large =
      run_program("/bin/sh", {"-c", "head -c 300000 /dev/zero; head -c 200000 /dev/zero >&2"});
  CHECK(large.out.size() == 300000);
  CHECK(large.errors.size() == 200000);
}

TEST_CASE("a program that does not end well") {
  const auto problem = [](const char* script, const ProgramLimits& limits = {}) {
    return run_program("/bin/sh", {"-c", script}, limits).problem;
  };
  CHECK(problem("exit 7") == "its exit status is 7");
  CHECK(problem("kill -9 $$") == "it died of signal 9");
  // Its own child too, which holds the outputs.
  CHECK(problem("sleep 1000; true", {.milliseconds = 50}) == "it took more than 50 ms");
  CHECK(problem("exec >&- 2>&-; sleep 1000; true", {.milliseconds = 50}) ==
        "it took more than 50 ms");
  CHECK(problem("yes", {.bytes = 100'000}) == "it printed more than 100000 bytes");
  CHECK(problem("yes >&2", {.bytes = 100'000}) == "it printed more than 100000 bytes");
  CHECK_THROWS_AS(run_program("/nowhere/nvdisasm", {}), Failure);
}
