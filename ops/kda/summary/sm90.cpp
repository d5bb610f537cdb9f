// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the summaries of the forward direction by warpgroups with roles, for sm_90a.
#include "ops/kda/sm90.h"

#include <memory>
#include <utility>

#include "ops/kda/summary/step.h"

namespace lathe {
namespace {

class Warpgroups final : public KdaSummary {
 public:
  Warpgroups(KernelSpec spec, bool packed)
      : KdaSummary(std::move(spec)), packed_(packed), columns_(kda_warpgroups_columns(*kernel)) {
    // A token takes a third of the portable time, and the first ones take some more.
    link_tokens = 42, launch_tokens = 150;
  }

  int64_t columns() const override { return columns_; }
  Work work(const KdaProblem& problem) const override {
    const int64_t k = problem.key_dim;
    return {k * bytes_of(problem.element) + k * bytes_of(problem.gate) + bytes_of(problem.beta),
            kda_warpgroups_ops(problem, columns_, false)};
  }
  Status launch(const KdaSummaryParams& summary, int64_t blocks,
                CUstream_st* stream) const override {
    KdaSummaryWarpgroupsParams p = {};
    p.summary = summary;
    LATHE_TRY(encode_kda_maps(kernel, packed_, summary.in, false, &p.maps));
    return kernel.launch(blocks, &p, stream);
  }

 private:
  bool packed_;
  int64_t columns_;
};

constexpr Template kTemplate =
    LATHE_TEMPLATE("kda/sm90", "kda_summary_warpgroups", KdaSummaryWarpgroupsParams, summary);

std::string refusal(const KdaSummaryProblem& problem, const DeviceFacts& facts) {
  if (problem.chosen_portable) return "the tuned choice is a portable kernel";
  // A call that gives gradients beside o has the portable one, and so the same bits.
  if (problem.kda.saves) return "what the backward reads is kept";
  if (!problem.parts.states || problem.parts.grads) return "it also walks back";
  return kda_warpgroups_refusal(problem.kda, facts, kTemplate.kernel);
}

std::vector<KernelSpec> candidates(const KdaSummaryProblem& problem, const DeviceFacts&) {
  return {kda_warpgroups_spec(kTemplate, problem.kda, kda_summary_spec(problem),
                              {"KdaSummaryWarpgroupsSmem", false, false})};
}

std::unique_ptr<KdaSummary> make(KernelSpec spec, const KdaSummaryProblem& problem,
                                 const DeviceFacts&) {
  return std::make_unique<Warpgroups>(std::move(spec), problem.kda.packed);
}

}  // namespace

const KdaSummaryStep kKdaSummarySm90 = {"sm90", refusal, candidates, {}, make};

}  // namespace lathe
