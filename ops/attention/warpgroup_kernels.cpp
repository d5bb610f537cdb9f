// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/warpgroup_kernels.h"

namespace lathe {
namespace {

constexpr int kRows = 128, kKeys = 128, kStages = 2, kPanel = 64;
constexpr int kThreads = 384;  // two warpgroups that multiply, one that copies
constexpr int kBarrierBytes = 8 * (2 + 4 * kStages);

int smem_bytes(int width, int value_width) {
  return 2 * (kRows * width + kStages * kKeys * (width + value_width)) + kBarrierBytes;
}

}  // namespace

const char* attention_warpgroups_refusal(const AttentionProblem& problem,
                                         const DeviceFacts& facts) {
  if (!facts.sm90_kernels) return "LATHE_FAMILY is not sm90";
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (!problem.forward) return "there is no forward";
  if (problem.element == Dtype::f32) return "the elements are float32";
  const int width = attention_padded_width(problem.head_dim);
  if (width != attention_padded_width(problem.value_dim)) return "the head widths differ";
  if (width != 64 && width != 128) return "the head width is not 64 or 128";
  if (problem.pack_gqa) return "the heads of a group share tiles";
  if (!problem.mods.empty()) return "there are mods";
  return nullptr;
}

KernelSpec attention_warpgroups_spec(const AttentionProblem& problem) {
  const int width = attention_padded_width(problem.head_dim);
  const int value_width = attention_padded_width(problem.value_dim);
  KernelSpec spec =
      shared_spec(LATHE_TEMPLATE("attention/sm90", "attention_forward_warpgroups",
                                 AttentionWarpgroupsParams, section),
                  "AttentionWarpgroupsSmem", smem_bytes(width, value_width), kThreads);
  // The constants are those of the portable kernel, whose geometry serves both.
  spec.constants =
      attention_forward_spec(problem, {kRows, kKeys, kStages, kThreads / 32}).constants;
  const auto map = [&](const char* field, int rows) {
    spec.tensor_maps.push_back({field, problem.element, {kPanel, rows, 1, 1}, 128});
  };
  map("q", kRows);
  map("k", kKeys);
  map("v", kKeys);
  return spec;
}

bool is_attention_warpgroups(const KernelSpec& spec) { return !spec.tensor_maps.empty(); }

}  // namespace lathe
