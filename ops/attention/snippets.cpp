// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What snippets add to a request, to a call's parameters and to its workspace.
#include "ops/attention/snippets.h"

#include <cfloat>
#include <charconv>
#include <cmath>

#include "codegen/base/invalid.h"
#include "codegen/base/printable.h"
#include "codegen/snippets.h"

namespace lathe {
namespace {

constexpr const char* kArrays[] = {"capture_0", "capture_1", "capture_2", "capture_3"};
constexpr const char* kScalars[] = {"scalar_0", "scalar_1", "scalar_2", "scalar_3"};
constexpr int kCaptures = 4;

// -1 if the operator has no such tensor or the problem does not declare it.
int declared_tensor(const lathe_problem& problem, const char* name) {
  const int index = find_tensor(*problem.op, name);
  return index >= 0 && problem.has(index) ? index : -1;
}

Status read_scalar(const lathe_problem& problem, const char* name, float* out) {
  const std::string value = problem.option(name);
  double number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  if (std::abs(number) > FLT_MAX) {
    return invalid(
        text("option ", name, " is ", in_quotes(value), ", which float32 does not hold"));
  }
  *out = static_cast<float>(number);
  return {};
}

}  // namespace

Status read_snippets(const lathe_problem& problem, AttentionRequest* request) {
  AttentionProblem& asked = request->problem;
  for (const char* name : {"score_mod", "mask_mod"}) {  // in this order, however they were set
    for (const Snippet& snippet : problem.snippets) {
      if (snippet.name == name) asked.snippets.push_back(snippet);
    }
  }
  for (int i = 0; i < kCaptures; ++i) {
    LATHE_TRY(read_scalar(problem, kScalars[i], &request->scalars[i]));
    const int tensor = request->captured[i] = declared_tensor(problem, kArrays[i]);
    if (tensor < 0) continue;
    asked.captures[i] = problem.tensors[tensor].dtype;
    if (asked.snippets.empty()) {
      return invalid(text(kArrays[i],
                          " is declared, but nothing reads it: neither score_mod nor "
                          "mask_mod is given"));
    }
  }
  const Snippet* score_mod = asked.snippet("score_mod");
  if (declared_tensor(problem, "dout") >= 0 && score_mod != nullptr &&
      !snippet_mentions(score_mod->text, "score_mod_bwd")) {
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
