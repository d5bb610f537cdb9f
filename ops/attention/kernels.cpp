// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/kernels.h"

#include <algorithm>
#include <iterator>

namespace lathe {
namespace {

constexpr int kWidths[] = {64, 96, 128, 192, 256};
constexpr int kQueueBytes = 256;   // of visits, in a block step
constexpr int kMapAlignment = 16;  // of pointers and strides: what a tensor map asks for

}  // namespace

std::string tensor_map_refusal(const AttentionProblem& problem, const DeviceFacts& facts) {
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (problem.alignment >= kMapAlignment) return {};
  return "rows are aligned to fewer than 16 bytes (lathe_problem_alignment)";
}

Constant attention_offsets(const AttentionProblem& problem) {
  return Constant::type("cu", "CuSeqlens", problem.packed ? problem.cu_seqlens : Dtype::i32);
}

AttentionTiling::AttentionTiling(const KernelSpec& spec)
    : m(spec.constant("m", 0)),
      n(spec.constant("n", 0)),
      width(spec.constant("width", 0)),
      value_width(spec.constant("value_width", 0)),
      packed(spec.constant("packed", 0)),
      local(spec.constant("local", 0)),
      pack_gqa(spec.constant("pack_gqa", 0)),
      whole_groups(spec.constant("whole_groups", 0)),
      short_first(spec.constant("short_first", 0)),
      ranges(spec.constant("ranges", 0)),
      persistent(spec.constant("persistent", 0)),
      threads(spec.threads),
      smem_bytes(spec.smem_bytes) {}

void add_score_flags(const AttentionProblem& problem, KernelSpec* spec) {
  spec->add({Constant::flag("softcap", "kSoftcap", problem.softcap),
             Constant::flag("alibi", "kAlibi", problem.alibi)});
}

int attention_padded_width(int width) {
  return *std::lower_bound(std::begin(kWidths), std::end(kWidths) - 1, width);
}

int attention_queue_bytes(const AttentionProblem& problem) {
  return problem.ranges || problem.positions ? kQueueBytes : 0;
}

}  // namespace lathe
