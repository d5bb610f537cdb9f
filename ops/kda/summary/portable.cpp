// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the summaries with mma.sync and cp.async, for every architecture and element.
#include <memory>
#include <utility>

#include "ops/kda/summary/step.h"

namespace lathe {
namespace {

class Portable final : public KdaSummary {
 public:
  explicit Portable(KernelSpec spec)
      : KdaSummary(std::move(spec)), columns_(KdaWalkTile{kernel->threads / 32}.values()) {}

  int64_t columns() const override { return columns_; }
  Work work(const KdaProblem& problem, bool) const override {
    const int64_t k = problem.key_dim;
    return {2 * k * bytes_of(problem.element) + k * bytes_of(problem.gate) + bytes_of(problem.beta),
            kda_walk_ops(problem, {columns_, 1, kda_sum_parts(problem)})};
  }
  Status launch(const KdaSummaryParams& p, int64_t blocks, CUstream_st* stream) const override {
    return kernel.launch(blocks, &p, stream);
  }

 private:
  int64_t columns_;
};

std::string refusal(const KdaSummaryProblem& problem, const DeviceFacts& facts) {
  return kda_walk_refusal(problem.kda, facts);
}

std::vector<KernelSpec> candidates(const KdaSummaryProblem& problem, const DeviceFacts&) {
  return {kda_summary_spec(problem)};
}

std::unique_ptr<KdaSummary> make(KernelSpec spec, const KdaSummaryProblem&, const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec));
}

}  // namespace

KernelSpec kda_summary_spec(const KdaSummaryProblem& problem) {
  const KdaSummaryParts& parts = problem.parts;
  KernelSpec spec =
      kda_walk_spec(LATHE_TEMPLATE("kda", "kda_summary", KdaSummaryParams, wanted_only),
                    problem.kda, problem.tile);
  spec.add({Constant::flag("states", "kStates", parts.states),
            Constant::flag("initial", "kInitialState", parts.states && parts.initial_state),
            Constant::flag("grads", "kGrads", parts.grads),
            Constant::flag("dht", "kFinalStateGrad", parts.grads && parts.dht)});
  if (parts.states) add_kda_pool(problem.kda, false, &spec);
  return spec;
}

const KdaSummaryStep kKdaSummaryPortable = {"portable", refusal, candidates, {}, make};

}  // namespace lathe
