// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These cases hold the ports of registers, and the pipes that multiply and add, to their sources:
//   [huerta] Huerta et al., Analyzing modern NVIDIA GPU cores (arXiv 2503.20481), section 5.3: two
//            banks of registers, each of which gives one register to all lanes in a cycle.
//   [ncu]    Nsight Compute's documentation, pipelines: integer multiply-adds go through the FMA
//            pipe, on GPUs with two of them through the heavy one alone.
#include <array>

#include "sim/clock/opcodes.h"
#include "sim/tests/clock/clock_run.h"

using namespace sim;
using namespace sim::test;

namespace {

using Reads = std::array<int, 2>;  // of registers with even and with odd numbers

Reads reads_of(const std::string& text, const std::string& before = "") {
  clock::Op op = clock::decode_machine(text);
  if (before.empty()) {
    clock::count_bank_reads(&op, nullptr);
  } else {
    const clock::Op last = clock::decode_machine(before);
    clock::count_bank_reads(&op, &last);
  }
  return {op.bank_reads[0], op.bank_reads[1]};
}

// Cycles of independent instructions, of four warps a part; `order` has an f for each multiply-add
// of float32 and an i for each of integers.
double cycles_of(const std::string& gpu, const std::string& arch, const std::string& order) {
  std::string body;
  for (size_t k = 0; k < order.size(); ++k) {
    const std::string n = std::to_string(k);
    body += order[k] == 'f' ? " fma.rn.f32 %f" + n + ", %f" + n + ", %f20, %f" + n + ";\n"
                            : " mad.lo.u32 %r1" + n + ", %r1" + n + ", %r2, %r1" + n + ";\n";
  }
  double cycles[2];
  for (int k = 0; k < 2; ++k) {
    Device device(arch);
    device.load(
        unit("\n.visible .entry k(.param .u64 out) {\n"
             " .reg .f32 %f<30>; .reg .b32 %r<30>;\n mov.f32 %f20, 0f3F800000;\n"
             " mov.u32 %r2, 3;\n" +
                 numbered(8, " mov.f32 %f#, 0f3F800000;\n mov.u32 %r1#, 5;\n") +
                 repeated((k + 1) * 64, body) + " ret;\n}\n",
             arch));
    clock::ReplayOptions options;
    options.ptx_only = true;  // ptxas would take out what nobody uses
    const uint64_t out = device.buffer(64);
    cycles[k] = run_timed(device, gpu, options, 1, 1, 512, out).time.cycles;
  }
  return (cycles[1] - cycles[0]) / 64;
}

}  // namespace

TEST_CASE("the registers that an instruction has to read, by bank") {
  CHECK(reads_of("FFMA R11, R10, R12, R14") == Reads{3, 0});
  CHECK(reads_of("FFMA R13, R16, R17, R19") == Reads{1, 2});
  CHECK(reads_of("FFMA R13, R16, R16, R17") == Reads{1, 1});
  CHECK(reads_of("IMAD.U32 R83, R83, 0x10000, RZ") == Reads{0, 1});
  CHECK(reads_of("FMUL R4, R3, c[0x0][0x160]") == Reads{0, 1});
  CHECK(reads_of("HMMA.16816.F32 R4, R132, R136, R4") == Reads{5, 5});
  // One operand stays, and for the next instruction only.
  const std::string keeps = "FFMA R11, R10.reuse, R12, R14";
  CHECK(reads_of("FFMA R13, R10, R17, R19", keeps) == Reads{0, 2});
  CHECK(reads_of("FFMA R13, R17, R10, R19", keeps) == Reads{1, 2});
  CHECK(reads_of("FFMA R13, R12, R17, R19", keeps) == Reads{1, 2});
}

TEST_CASE("multiply-adds of float32 and of integers share a pipe, of which Hopper has two") {
  const auto near = [](double found, double published) {
    INFO(found << " cycles, " << published << " published");
    CHECK(found >= 0.93 * published);
    CHECK(found <= 1.07 * published);
  };
  near(cycles_of("h100", "sm_90a", "ffffffff"), 4 * 8);
  near(cycles_of("h100", "sm_90a", "fifififi"), 4 * 8);
  near(cycles_of("h100", "sm_90a", "fiiifiii"), 4 * 12);
  near(cycles_of("a100", "sm_80", "ffffffff"), 4 * 16);
  near(cycles_of("a100", "sm_80", "fifififi"), 4 * 16);
}
