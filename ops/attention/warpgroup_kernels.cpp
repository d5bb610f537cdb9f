// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/warpgroup_kernels.h"

#include "codegen/base/integers.h"

namespace lathe {
namespace {

constexpr int kRows = 128, kPanel = 64;
constexpr int kThreads = 384;  // two warpgroups that multiply, one that copies

// The keys of a step and their stages, by padded widths of keys and of values. A thread that
// multiplies has 240 registers, of which sums take half the value width, scores half the keys and
// weights a quarter of them; what is left must hold addresses and every option. A block has 227 KiB
// of shared memory: q, and in each stage keys and values.
struct Widths {
  int width, value_width;
  int keys, stages;
};
constexpr Widths kWidths[] = {
    {64, 64, 128, 2},    // 128 registers, 80 KiB
    {96, 96, 128, 2},    // 144 registers, 160 KiB: a panel is half zeros
    {128, 128, 128, 2},  // 160 registers, 160 KiB
    {192, 128, 128, 2},  // 160 registers, 208 KiB
    {192, 192, 112, 2},  // 180 registers, 216 KiB
    {256, 256, 80, 2},   // 188 registers, 224 KiB
    {64, 256, 96, 2},    // 200 registers, 136 KiB
    {128, 64, 128, 2},   // 128 registers, 128 KiB
    {64, 128, 128, 2},   // 160 registers, 112 KiB
};

// Null if the kernel has no tile for these widths.
const Widths* widths_of(const AttentionProblem& problem) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  for (const Widths& own : kWidths) {
    if (own.width == width && own.value_width == value_width) return &own;
  }
  return nullptr;
}

int smem_bytes(const Widths& of) {
  const int width = round_up(of.width, kPanel), value_width = round_up(of.value_width, kPanel);
  const int barriers = 8 * (2 + 4 * of.stages), kept = kThreads - 128;
  return 2 * (kRows * width + of.stages * of.keys * (width + value_width)) + barriers + kept;
}

}  // namespace

const char* attention_warpgroups_refusal(const AttentionProblem& problem,
                                         const DeviceFacts& facts) {
  if (!facts.sm90_kernels) return "LATHE_FAMILY is not sm90";
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (!problem.forward) return "there is no forward";
  if (problem.element == Dtype::f32) return "the elements are float32";
  if (widths_of(problem) == nullptr) return "there is no tile for the head widths";
  if (problem.pack_gqa) return "the heads of a group share tiles";
  if (!problem.mods.empty()) return "there are mods";
  return nullptr;
}

KernelSpec attention_warpgroups_spec(const AttentionProblem& problem) {
  const Widths& widths = *widths_of(problem);
  KernelSpec spec = shared_spec(LATHE_TEMPLATE("attention/sm90", "attention_forward_warpgroups",
                                               AttentionWarpgroupsParams, section),
                                "AttentionWarpgroupsSmem", smem_bytes(widths), kThreads);
  // The constants are those of the portable kernel, whose geometry serves both.
  spec.constants =
      attention_forward_spec(problem, {kRows, widths.keys, widths.stages, kThreads / 32}).constants;
  const auto map = [&](const char* field, int rows) {
    spec.tensor_maps.push_back({field, problem.element, {kPanel, rows, 1, 1}, 128});
  };
  map("q", kRows);
  map("k", widths.keys);
  map("v", widths.keys);
  return spec;
}

bool is_attention_warpgroups(const KernelSpec& spec) { return !spec.tensor_maps.empty(); }

}  // namespace lathe
