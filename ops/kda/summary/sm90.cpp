// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the summaries by warpgroups with roles, for sm_90a.
#include "ops/kda/sm90.h"

#include <memory>
#include <utility>

#include "ops/kda/summary/step.h"

namespace lathe {
namespace {

class Warpgroups final : public KdaSummary {
 public:
  Warpgroups(KernelSpec spec, const KdaSummaryProblem& problem)
      : KdaSummary(std::move(spec)),
        packed_(problem.kda.packed),
        grads_(problem.parts.grads),
        columns_(kda_warpgroups_columns(*kernel)) {
    // A token takes a third of the portable time, and the first ones take some more. Links are
    // those of a backward, whose chains of two directions take 2 to 3 us: a cluster has most
    // forwards.
    link_tokens = 42, launch_tokens = 150;
  }

  int64_t columns() const override { return columns_; }
  Work work(const KdaProblem& problem, bool back) const override {
    const int64_t k = problem.key_dim;
    return {(back ? 2 : 1) * k * bytes_of(problem.element) + k * bytes_of(problem.gate) +
                bytes_of(problem.beta),
            back ? kda_warpgroups_back_ops(problem, columns_, 0)
                 : kda_warpgroups_ops(problem, columns_, false)};
  }
  Status launch(const KdaSummaryParams& summary, int64_t blocks,
                CUstream_st* stream) const override {
    KdaSummaryWarpgroupsParams p = {};
    p.summary = summary;
    KdaMapped mapped = {true, grads_};
    if (grads_) {
      mapped.gradients = kda_output_grads(
          summary.in, summary.d_o,
          {summary.do_batch_stride, summary.do_token_stride, summary.do_head_stride});
    }
    LATHE_TRY(encode_kda_maps(kernel, packed_, summary.in, mapped, &p.maps));
    return kernel.launch(blocks, &p, stream);
  }

 private:
  bool packed_, grads_;
  int64_t columns_;
};

constexpr Template kTemplate =
    LATHE_TEMPLATE("kda/sm90", "kda_summary_warpgroups", KdaSummaryWarpgroupsParams, summary);

std::string refusal(const KdaSummaryProblem& problem, const DeviceFacts& facts) {
  if (problem.chosen_portable) return "the tuned choice is a portable kernel";
  return kda_rows_refusal(problem.kda, facts, kTemplate.kernel,
                          problem.parts.grads ? kKdaNarrow : kKdaWide);
}

std::vector<KernelSpec> candidates(const KdaSummaryProblem& problem, const DeviceFacts&) {
  return {
      kda_warpgroups_spec(kTemplate, problem.kda, kda_summary_spec(problem),
                          {"KdaSummaryWarpgroupsSmem", false, false, true, problem.parts.grads})};
}

std::unique_ptr<KdaSummary> make(KernelSpec spec, const KdaSummaryProblem& problem,
                                 const DeviceFacts&) {
  return std::make_unique<Warpgroups>(std::move(spec), problem);
}

}  // namespace

const KdaSummaryStep kKdaSummarySm90 = {"sm90", refusal, candidates, {}, make};

}  // namespace lathe
