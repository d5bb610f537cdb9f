// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the walk back by warpgroups with roles, for sm_90a.
#include "ops/kda/sm90.h"

#include <memory>
#include <utility>

#include "ops/kda/back/step.h"

namespace lathe {
namespace {

class Warpgroups final : public KdaBack {
 public:
  Warpgroups(KernelSpec spec, bool packed)
      : KdaBack(std::move(spec)), packed_(packed), columns_(kda_warpgroups_columns(*kernel)) {}

  int64_t columns() const override { return columns_; }
  int64_t tensor_ops(const KdaProblem& problem) const override {
    return kda_warpgroups_back_ops(problem, columns_, 2);
  }
  Status launch(const KdaBackwardScanParams& scan, int64_t blocks,
                CUstream_st* stream) const override {
    KdaBackwardScanWarpgroupsParams p = {};
    p.scan = scan;
    // Records have the gradient of o where those of a walk forward have v.
    const MappedRows gradients = kda_output_grads(
        scan.in, scan.d_o, {scan.do_batch_stride, scan.do_token_stride, scan.do_head_stride});
    LATHE_TRY(encode_kda_maps(kernel, packed_, scan.in, {false, true, gradients}, &p.maps));
    return kernel.launch(blocks, &p, stream);
  }

 private:
  bool packed_;
  int64_t columns_;
};

constexpr Template kTemplate = LATHE_TEMPLATE("kda/sm90", "kda_backward_scan_warpgroups",
                                              KdaBackwardScanWarpgroupsParams, scan);

std::string refusal(const KdaBackProblem& problem, const DeviceFacts& facts) {
  if (problem.both) return "the same launch also walks forward";
  if (!problem.kda.backward) return "the gradient of the initial state alone is wanted";
  return kda_rows_refusal(problem.kda, facts, kTemplate.kernel);
}

std::vector<KernelSpec> candidates(const KdaBackProblem& problem, const DeviceFacts&) {
  KernelSpec spec = kda_warpgroups_spec(kTemplate, problem.kda, kda_backward_scan_spec(problem),
                                        {"KdaBackSmem", true, false, false, true});
  spec.add({Constant::flag("by_beta", "kByBeta", problem.by_beta)});
  return {spec};
}

std::unique_ptr<KdaBack> make(KernelSpec spec, const KdaBackProblem& problem, const DeviceFacts&) {
  return std::make_unique<Warpgroups>(std::move(spec), problem.kda.packed);
}

}  // namespace

const KdaBackStep kKdaBackSm90 = {"sm90", refusal, candidates, {}, make};

}  // namespace lathe
