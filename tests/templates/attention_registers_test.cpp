// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the default tiles of attention cost in registers, spills and shared memory. The units that
// are nearest to 255 registers are compiled always; a survey of all widths, types, options and
// architectures takes an hour and runs on demand:
//
//   templates_attention_compile_test --no-skip -tc="attention: the survey*"
#include <doctest/doctest.h>

#include <cstdlib>

#include "codegen/base/text.h"
#include "tests/ops/attention/kernel_problems.h"
#include "tests/templates/compile_jobs.h"

using namespace lathe;

namespace {

struct Unit {
  const char* arch;
  Dtype element;
  int head_dim, value_dim;
  // Of packed, local, softcap, alibi, sinks, pack_gqa, backward, ordered; and of a block step's
  // pairs, positions, turns.
  const char* flags;
  bool has(const char* flag) const { return std::string(flags).find(flag) != std::string::npos; }
};

KernelSpec default_of(const Unit& unit) {
  AttentionProblem problem;
  problem.element = unit.element;
  problem.head_dim = unit.head_dim, problem.value_dim = unit.value_dim;
  problem.packed = unit.has("packed"), problem.local = unit.has("local");
  problem.softcap = unit.has("softcap"), problem.alibi = unit.has("alibi");
  problem.sinks = unit.has("sinks"), problem.pack_gqa = unit.has("pack_gqa");
  problem.deterministic = unit.has("ordered");
  problem.ranges = unit.has("pairs"), problem.positions = unit.has("positions");
  problem.persistent = unit.has("turns");
  const DeviceFacts facts = *facts_of_arch(unit.arch);
  if (problem.ranges || problem.positions) {
    (unit.has("backward") ? problem.backward : problem.forward) = true;
    return unit.has("backward") ? kernel_problems::block_backward_spec(problem, facts)
                                : kernel_problems::block_spec(problem, facts);
  }
  if (unit.has("backward")) {
    problem.backward = true;
    const AttentionBackwardTile tile = kernel_problems::first_backward_tile(problem, facts);
    return attention_backward_spec(problem, tile, false);
  }
  problem.forward = true;
  return attention_forward_spec(problem, kernel_problems::first_tile(problem, facts));
}

}  // namespace

TEST_CASE("attention: the defaults that need most registers do not spill") {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  constexpr Dtype kHalf = Dtype::bf16, kFull = Dtype::f32;
  constexpr Unit kUnits[] = {
      {"sm_80", kHalf, 64, 64, "packed local alibi sinks"},
      {"sm_80", kHalf, 128, 192, "local alibi pack_gqa"},
      {"sm_86", kHalf, 192, 256, "local"},
      {"sm_90a", kHalf, 96, 256, "local"},
      {"sm_100", kHalf, 64, 256, "packed local softcap alibi sinks pack_gqa"},
      {"sm_120", kHalf, 64, 64, "packed local softcap pack_gqa"},
      {"sm_90a", kFull, 256, 256, "packed local softcap alibi sinks pack_gqa"},
      {"sm_80", kHalf, 256, 256, "backward packed local softcap alibi ordered"},
      {"sm_90a", kHalf, 128, 128, "backward packed local softcap alibi ordered"},
      {"sm_86", kFull, 256, 256, "backward packed local softcap alibi ordered"},
      {"sm_80", kHalf, 64, 64, "pairs local alibi turns"},
      {"sm_80", kHalf, 128, 128, "backward positions local softcap alibi turns"},
  };
  compile_test::Jobs jobs;
  for (const Unit& unit : kUnits) jobs.add(default_of(unit), unit.arch);
  for (const std::string& failure : compile_test::compile(*nvrtc, jobs.list()).failures) {
    FAIL_CHECK(failure);
  }
}

constexpr int kWidths[] = {64, 96, 128, 192, 256};

void survey(const Compiler& nvrtc, const Unit& unit) {
  compile_test::survey(
      nvrtc, default_of(unit), unit.arch,
      text(word(unit.element), ' ', unit.head_dim, '/', unit.value_dim, ' ', unit.flags));
}

// LATHE_TEST_ARCH: of one architecture alone.
TEST_CASE("attention: the survey of registers of block steps" * doctest::skip()) {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  constexpr const char* kFlags[] = {"pairs",
                                    "pairs local softcap alibi turns",
                                    "positions local",
                                    "positions local softcap alibi turns",
                                    "backward pairs local ordered turns",
                                    "backward pairs local softcap alibi turns",
                                    "backward positions local softcap alibi turns"};
  const char* only = std::getenv("LATHE_TEST_ARCH");
  for (const std::string& arch : supported_archs()) {
    if (only && arch != only) continue;
    for (const Dtype element : {Dtype::bf16, Dtype::f32}) {
      for (const int width : kWidths) {
        for (const char* flags : kFlags) {
          survey(*nvrtc, {arch.c_str(), element, width, width, flags});
        }
      }
    }
  }
}

TEST_CASE("attention: the survey of registers" * doctest::skip()) {
  const auto nvrtc = compile_test::open_compiler();
  if (!nvrtc) return;
  constexpr const char* kFlags[] = {"",
                                    "local",
                                    "packed local",
                                    "local alibi pack_gqa",
                                    "packed local softcap",
                                    "packed local softcap alibi sinks",
                                    "packed local softcap alibi sinks pack_gqa",
                                    "backward",
                                    "backward local",
                                    "backward packed local softcap alibi",
                                    "backward packed local softcap alibi ordered"};
  for (const std::string& arch : supported_archs()) {
    for (const Dtype element : {Dtype::bf16, Dtype::f32}) {
      for (const int head_dim : kWidths) {
        for (const int value_dim : kWidths) {
          for (const char* flags : kFlags) {
            survey(*nvrtc, {arch.c_str(), element, head_dim, value_dim, flags});
          }
        }
      }
    }
  }
}
