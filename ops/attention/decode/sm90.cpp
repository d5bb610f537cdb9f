// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements latent decoding by warpgroups with roles (sm_90a), with the same results as the
// portable kernel within tolerance.
#include <memory>
#include <utility>

#include "device/tensor_map.h"
#include "ops/attention/decode/portable.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/attention_decode_warpgroups.h"

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

KernelSpec spec_of(const AttentionProblem& problem) {
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

std::string refusal(const AttentionDecodeProblem& problem, const DeviceFacts& facts) {
  if (std::string why = tensor_map_refusal(problem, facts); !why.empty()) return why;
  const AttentionDecodeRows& rows = problem.declared;
  if (!problem.latent) return "values have a cache of their own";
  if (!problem.mods.empty()) return "there are mods";
  if (problem.narrow != kWideRows) return "the cache has 8 bits";
  if (problem.spread) return "keys lie on several ranks or begin behind padding";
  if (problem.rotary) return "a rotary embedding turns the queries";
  if (rows.page >= 0 && rows.page % kRun != 0) return "a page is no multiple of 16 keys";
  if (rows.queries >= 0 && rows.ratio >= 0 && rows.queries * rows.ratio <= kFewRows) {
    return "there are few rows";
  }
  return facts.rejection(kKernel);
}

std::vector<KernelSpec> candidates(const AttentionDecodeProblem& problem, const DeviceFacts&) {
  return {spec_of(problem)};
}

class Warpgroups final : public AttentionDecode {
 public:
  using AttentionDecode::AttentionDecode;

  // Copies bring whole runs of rows of a page, and with few rows the portable kernel wastes less.
  bool takes(const AttentionDecodeShape& shape) const override {
    return shape.page % kRun == 0 && shape.pages > 0 && shape.queries * shape.ratio() > kFewRows;
  }

  Status launch(const AttentionDecodeCall& of) const override {
    AttentionDecodeWarpgroupsParams p = {};
    fill(of, &p.decode);
    const bool whole = of.shape.page % kKeys == 0;
    p.box_rows = whole ? kKeys : kRun;
    const Tensor& cache = of.call.tensors[attention_decode::k_cache];
    const AttentionStrides strides = attention_strides(cache, false);
    const int64_t columns = of.request.attention.problem.head_dim;
    MappedTensor keys = {cache.data,
                         {columns, of.shape.page, of.shape.kv_heads, of.shape.pages},
                         {1, strides.token, strides.head, strides.batch},
                         {}};
    for (size_t k = 1; k < 4; ++k) {
      if (keys.extent[k] == 1) keys.stride[k] = 8;  // that nobody uses
    }
    LATHE_TRY(kernel.encode(whole ? 0 : 1, keys, &p.k));
    return kernel.launch(of.parts.blocks, &p, of.call.stream);
  }
};

std::unique_ptr<AttentionDecode> make(KernelSpec spec, const AttentionDecodeProblem&,
                                      const DeviceFacts&) {
  return std::make_unique<Warpgroups>(std::move(spec));
}

}  // namespace

const AttentionDecodeStep kAttentionDecodeSm90 = {
    "sm90", refusal, candidates, {"n", "stages"}, make};

}  // namespace lathe
