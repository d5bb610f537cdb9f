// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the forward walk by warpgroups with roles, for sm_90a.
#include "ops/kda/sm90.h"

#include <memory>
#include <utility>

#include "ops/kda/forward/step.h"

namespace lathe {
namespace {

class Warpgroups final : public KdaForward {
 public:
  Warpgroups(KernelSpec spec, const KdaProblem& problem, KdaWalkTile beside)
      : KdaForward(std::move(spec)),
        packed_(problem.packed),
        outputs_(!problem.no_output),
        saves_(problem.saves),
        columns_(kda_warpgroups_columns(*kernel)),
        beside_(beside) {}

  int64_t columns() const override { return columns_; }
  KdaWalkTile beside() const override { return beside_; }
  bool leaves_out() const override { return true; }
  int64_t tensor_ops(const KdaProblem& problem) const override {
    const int64_t kept = saves_ ? 2 * kKdaBlock * kKdaBlock * columns_ : 0;  // vn
    return kda_warpgroups_ops(problem, columns_, outputs_) + kept;
  }
  Status launch(const KdaForwardParams& forward, int64_t blocks,
                CUstream_st* stream) const override {
    KdaForwardWarpgroupsParams p = {};
    p.forward = forward;
    LATHE_TRY(encode_kda_maps(kernel, packed_, forward.in, {true, outputs_}, &p.maps));
    return kernel.launch(blocks, &p, stream);
  }

 private:
  bool packed_, outputs_, saves_;
  int64_t columns_;
  KdaWalkTile beside_;
};

constexpr Template kTemplate =
    LATHE_TEMPLATE("kda/sm90", "kda_forward_warpgroups", KdaForwardWarpgroupsParams, forward);

std::string refusal(const KdaProblem& problem, const DeviceFacts& facts) {
  if (problem.chunk_states) return "states of chunks are wanted";
  if (problem.warmup) return "segments start early";
  if (std::string none = kda_walk_refusal(problem, facts); !none.empty()) return none;
  return kda_warpgroups_refusal(problem, facts, kTemplate.kernel);
}

std::vector<KernelSpec> candidates(const KdaProblem& problem, const DeviceFacts&) {
  return {kda_warpgroups_spec(kTemplate, problem, kda_forward_spec(problem, {}),
                              {"KdaWarpgroupsSmem", !problem.no_output, problem.saves})};
}

std::unique_ptr<KdaForward> make(KernelSpec spec, const KdaProblem& problem,
                                 const DeviceFacts& facts) {
  return std::make_unique<Warpgroups>(std::move(spec), problem,
                                      kda_walk_candidates(problem, facts).front());
}

}  // namespace

const KdaForwardStep kKdaForwardSm90 = {"sm90", refusal, candidates, {}, make};

}  // namespace lathe
