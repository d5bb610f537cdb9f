// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What mods add to a request, to a call's parameters and to its workspace.
#include "ops/attention/mods.h"

#include "codegen/base/invalid.h"
#include "codegen/mods.h"

namespace lathe {
namespace {

constexpr int kCaptures = 4;

}  // namespace

Status read_mods(const Resolved& resolved, int capture_0, AttentionRequest* request) {
  const lathe_problem& problem = resolved.problem;
  const auto& options = resolved.options_as<ScoreOptions>();
  AttentionProblem& asked = request->problem;
  request->scalars = {options.scalar_0, options.scalar_1, options.scalar_2, options.scalar_3};
  for (const char* name : {"score_mod", "mask_mod"}) {  // in this order, however they were set
    for (const Mod& mod : problem.mods) {
      if (mod.name == name) asked.mods.push_back(mod);
    }
  }
  for (int i = 0; i < kCaptures; ++i) {
    const int tensor = capture_0 + i;
    if (!problem.has(tensor)) continue;
    request->captured[i] = tensor;
    asked.captures[i] = resolved.dtype(tensor);
    if (asked.mods.empty()) {
      return invalid(text(problem.op->tensors[tensor].name,
                          " is declared, but nothing reads it: neither score_mod nor mask_mod is "
                          "given"));
    }
  }
  const Mod* score_mod = asked.mod("score_mod");
  const int dout = find_tensor(*problem.op, "dout");
  if (dout >= 0 && problem.has(dout) && score_mod != nullptr &&
      !mod_mentions(score_mod->text, "score_mod_bwd")) {
    return invalid(text("dout is declared and option score_mod is ", score_mod->file,
                        ", which has no gradient; it must define __device__ float score_mod_bwd("
                        "float dscore, float score, int batch, int head, int q_idx, int kv_idx)"));
  }
  return {};
}

Result<AttentionLists> forward_lists(const AttentionProblem& problem, const KernelSpec& walker,
                                     const AttentionShape& shape, WorkspaceLayout* layout) {
  const int64_t lists = attention_lists(walker, problem, shape);
  AttentionLists out;
  out.stride = attention_list_entries(walker, shape);
  out.entries = layout->add({lists, out.stride, 4});
  out.counts = layout->add({lists, 4});
  return out;
}

Result<AttentionLists> backward_lists(const AttentionProblem& problem, const KernelSpec& walker,
                                      const AttentionShape& shape, WorkspaceLayout* layout) {
  AttentionLists out;
  out.tiles = attention_key_tiles(walker, shape);
  out.stride = attention_query_entries(walker, shape);
  LATHE_ASSIGN(out.blocks, checked_product("a launch", {out.tiles, shape.heads, shape.sequences}));
  if (out.blocks > kMaxExtent) {
    return Status(
        Code::unsupported,
        text("mask_mod over ", shape.sequences, " sequences, ", shape.heads, " heads and ",
             shape.seq_k, " keys needs more than ", kMaxExtent, " blocks; split the batch"));
  }
  const int64_t lists =
      shape.heads * (problem.packed ? out.tiles + shape.sequences : out.tiles * shape.sequences);
  out.entries = layout->add({lists, out.stride, 4});
  out.counts = layout->add({lists, 4});
  return out;
}

}  // namespace lathe
