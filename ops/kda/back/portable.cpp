// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the walk back with mma.sync and cp.async, for every architecture and element.
#include <memory>
#include <utility>

#include "ops/kda/back/step.h"

namespace lathe {
namespace {

class Portable final : public KdaBack {
 public:
  explicit Portable(KernelSpec spec)
      : KdaBack(std::move(spec)), columns_(KdaWalkTile{kernel->threads / 32}.values()) {}

  int64_t columns() const override { return columns_; }
  int64_t tensor_ops(const KdaProblem& problem) const override {
    return kda_walk_ops(problem, {columns_, 2, 1 + kda_sum_parts(problem)});
  }
  Status launch(const KdaBackwardScanParams& p, int64_t blocks,
                CUstream_st* stream) const override {
    return kernel.launch(blocks, &p, stream);
  }

 private:
  int64_t columns_;
};

std::string refusal(const KdaBackProblem& problem, const DeviceFacts& facts) {
  return kda_walk_refusal(problem.kda, facts);
}

std::vector<KernelSpec> candidates(const KdaBackProblem& problem, const DeviceFacts&) {
  return {kda_backward_scan_spec(problem)};
}

std::unique_ptr<KdaBack> make(KernelSpec spec, const KdaBackProblem&, const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec));
}

}  // namespace

KernelSpec kda_backward_scan_spec(const KdaBackProblem& problem) {
  const KdaProblem& kda = problem.kda;
  KernelSpec spec =
      kda_walk_spec(LATHE_TEMPLATE("kda", "kda_backward_scan", KdaBackwardScanParams, reserved),
                    kda, problem.tile);
  spec.add({Constant::flag("initial", "kInitialState", kda.initial_state && problem.both),
            Constant::flag("final", "kFinalState", false),
            Constant::flag("chunks", "kChunkStates", false),
            Constant::flag("output", "kOutput", false),
            Constant::flag("saved", "kSaved", problem.both),
            Constant::flag("dht", "kFinalStateGrad", kda.dht),
            Constant::flag("dinitial", "kInitialStateGrad", kda.dinitial_state),
            Constant::flag("ranks", "kRanks", kda.ranks)});
  return spec;
}

const KdaBackStep kKdaBackPortable = {"portable", refusal, candidates, {}, make};

}  // namespace lathe
