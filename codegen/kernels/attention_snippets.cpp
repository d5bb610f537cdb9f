// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What snippets add to the flash attention family: their text in its specs, and the kernel that
// makes lists of key blocks of a mask_mod.
#include <cstddef>
#include <cstring>

#include "codegen/base/text.h"
#include "codegen/kernels/attention.h"
#include "templates/params/attention.h"

namespace lathe {
namespace {

constexpr int kMaskBlocksWarps = 8;  // key blocks of a tile that are classified at once

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

void add_snippets(const AttentionProblem& problem, KernelSpec* spec, const char* only) {
  if (problem.snippets.empty()) return;
  for (size_t i = 0; i < problem.captures.size(); ++i) {
    if (!problem.captures[i]) continue;
    spec->constants.push_back(
        Constant::type(text("capture_", i), text("Capture", i), *problem.captures[i]));
  }
  for (const Snippet& snippet : problem.snippets) {
    if (only == nullptr || snippet.name == only) spec->snippets.push_back(snippet);
  }
}

KernelSpec attention_mask_blocks_spec(const AttentionProblem& problem, const KernelSpec& walker) {
  KernelSpec spec;
  spec.kernel = "attention_mask_blocks";
  spec.source = "attention/attention_mask_blocks.cuh";
  spec.params = "AttentionForwardParams";
  spec.params_bytes = sizeof(AttentionForwardParams);
  spec.last_field = "softcap";
  spec.last_field_offset = offsetof(AttentionForwardParams, softcap);
  spec.smem = "AttentionMaskBlocksSmem";
  spec.smem_bytes = 4 * kMaskBlocksWarps;
  spec.threads = 32 * kMaskBlocksWarps;
  for (const Constant& constant : walker.constants) {
    for (const char* name : {"cu", "m", "n", "packed", "local", "pack_gqa"}) {
      if (constant.name == name) spec.constants.push_back(constant);
    }
  }
  add_snippets(problem, &spec, "mask_mod");
  return spec;
}

int64_t attention_lists(const KernelSpec& spec, const AttentionProblem& problem,
                        const AttentionShape& shape) {
  const int64_t heads = spec.constant("pack_gqa") != 0 ? shape.kv_heads : shape.heads;
  const int64_t tiles = attention_tiles(spec, shape);
  return heads * (problem.packed ? tiles + shape.sequences : tiles * shape.sequences);
}

int64_t attention_list_entries(const KernelSpec& spec, const AttentionShape& shape) {
  return ceil_div(shape.seq_k, spec.constant("n"));
}

}  // namespace lathe
