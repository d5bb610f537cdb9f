// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/sm90/decode.h"

#include "device/tensor_map.h"

namespace lathe {
namespace {

constexpr int kPanel = 64, kRows = 64, kKeys = 64, kThreads = 384;
// Rows of a copy: those of a block of keys if a page is a multiple of them, else these.
constexpr int kRun = 16;
// A tile has 64 rows. With a quarter of them the portable kernel waits for memory alone; with half
// of them it is slower by the clock.
constexpr int64_t kFewRows = 16;
constexpr const char* kKernel = "attention_decode_warpgroups";

// [Q][two blocks of keys][weights][maxima and sums of the rows][barriers]
int smem_bytes(const AttentionProblem& problem) {
  const int panels = problem.head_dim / kPanel, panel_bytes = 2 * kPanel * kRows;
  return (3 * panels + 1) * panel_bytes + 4 * 4 * kRows + 2 * 8 * (panels + 2);
}

}  // namespace

const char* attention_decode_warpgroups_refusal(const AttentionProblem& problem,
                                                const DeviceFacts& facts,
                                                const AttentionDecodeRows& rows) {
  if (const char* refusal = facts.family_refusal()) return refusal;
  if (facts.arch != "sm_90a") return "the architecture is not sm_90a";
  if (const char* refusal = map_alignment_refusal(problem)) return refusal;
  if (!problem.latent) return "values have a cache of their own";
  if (!problem.mods.empty()) return "there are mods";
  if (rows.page >= 0 && rows.page % kRun != 0) return "a page is no multiple of 16 keys";
  if (rows.queries >= 0 && rows.ratio >= 0 && rows.queries * rows.ratio <= kFewRows) {
    return "there are few rows";
  }
  return facts.rejection(kKernel);
}

bool attention_decode_takes_warpgroups(const AttentionDecodeShape& shape) {
  return shape.page % kRun == 0 && shape.pages > 0 && shape.queries * shape.ratio() > kFewRows;
}

KernelSpec attention_decode_warpgroups_spec(const AttentionProblem& problem) {
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("attention/sm90", kKernel, AttentionDecodeWarpgroupsParams, box_rows),
      "AttentionDecodeWarpgroupsSmem", smem_bytes(problem), kThreads);
  // The constants are those of the portable kernel, whose geometry serves both.
  spec.constants = attention_latent_spec(problem, {kRows, kKeys, 2, kThreads / 32}).constants;
  for (const int rows : {kKeys, kRun}) {
    spec.tensor_maps.push_back({"k", problem.element, {kPanel, rows, 1, 1}, 128});
  }
  return spec;
}

Status launch_attention_decode_warpgroups(const KernelSlot& kernel,
                                          const AttentionDecodeParams& decode, int64_t blocks,
                                          CUstream_st* stream) {
  AttentionDecodeWarpgroupsParams p = {};
  p.decode = decode;
  const AttentionForwardParams& f = decode.forward;
  const bool whole = decode.pages.page % kKeys == 0;
  p.box_rows = whole ? kKeys : kRun;
  MappedTensor keys = {f.k,
                       {f.head_dim, decode.pages.page, f.kv_heads, decode.pages.pages},
                       {1, f.k_token_stride, f.k_head_stride, f.k_batch_stride}};
  for (size_t k = 1; k < 4; ++k) {
    if (keys.extent[k] == 1) keys.stride[k] = 8;  // that nobody uses
  }
  LATHE_TRY(kernel.encode(whole ? 0 : 1, keys, &p.k));
  return kernel.launch(blocks, &p, stream);
}

}  // namespace lathe
