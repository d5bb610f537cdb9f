// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the forward walk of segments by the blocks of a cluster, with the summaries and the
// chain in the same launch, for sm_90a.
#include <memory>
#include <utility>

#include "codegen/base/text.h"
#include "ops/kda/forward/step.h"
#include "ops/kda/sm90.h"

namespace lathe {
namespace {

constexpr int kChainState = 2 * 2 * 8 * 512;  // cluster_chain.cuh
constexpr int kChainBarriers = 16;

class Cluster final : public KdaForward {
 public:
  Cluster(KernelSpec spec, const KdaProblem& problem)
      : KdaForward(std::move(spec)),
        packed_(problem.packed),
        columns_(kda_warpgroups_columns(*kernel)) {}

  int64_t columns() const override { return columns_; }
  KdaWalkTile beside() const override { return {}; }
  int64_t tensor_ops(const KdaProblem& problem) const override {
    return kda_warpgroups_ops(problem, columns_, true);
  }
  int64_t tensor_ops_before(const KdaProblem& problem) const override {
    return kda_warpgroups_ops(problem, 2 * columns_, false);
  }
  Status launch(const KdaForwardParams& forward, int64_t blocks,
                CUstream_st* stream) const override {
    KdaForwardWarpgroupsParams p = {};
    p.forward = forward;
    LATHE_TRY(encode_kda_maps(kernel, packed_, forward.in, {true, true}, &p.maps));
    const Grid grid = {static_cast<unsigned>(blocks), 1, 1,
                       static_cast<unsigned>(forward.in.segments)};
    return kernel.launch(grid, &p, stream);
  }

 private:
  bool packed_;
  int64_t columns_;
};

constexpr Template kTemplate =
    LATHE_TEMPLATE("kda/sm90", "kda_forward_cluster", KdaForwardWarpgroupsParams, forward);

// A block has 128 columns of E and as many of M.
std::string refusal(const KdaProblem& problem, const DeviceFacts& facts) {
  if (!problem.forward || problem.no_output) return "there is no output";
  if (problem.backward || problem.dinitial_state) return "there is a backward";
  if (problem.saves) return "values and states are saved";
  if (problem.ranks) return "sequences go on on other ranks";
  if (problem.checkpoints) return "there are checkpoints";
  if (problem.chunk_states) return "states of chunks are wanted";
  if (problem.fixed_segments > kKdaMostInCluster) {
    return text("there are ", problem.fixed_segments, " segments; a cluster has ",
                kKdaMostInCluster);
  }
  if (kda_padded_keys(problem) != kKdaNarrow || problem.value_dim > kKdaNarrow ||
      problem.value_dim <= kKdaNarrow / 2) {
    return text("K is ", problem.key_dim, " and V is ", problem.value_dim,
                "; a cluster has 65 to 128 of either");
  }
  return kda_warpgroups_refusal(problem, facts, kTemplate.kernel);
}

std::vector<KernelSpec> candidates(const KdaProblem& problem, const DeviceFacts&) {
  KdaWarpgroupsWalk walk = {"KdaClusterSmem", true, false};
  walk.beside = kChainState + kChainBarriers;
  return {kda_warpgroups_spec(kTemplate, problem, kda_forward_spec(problem, {}), walk)};
}

std::unique_ptr<KdaForward> make(KernelSpec spec, const KdaProblem& problem, const DeviceFacts&) {
  spec.may_be_rejected = true;  // there are other launches
  return std::make_unique<Cluster>(std::move(spec), problem);
}

}  // namespace

const KdaForwardStep kKdaForwardCluster = {"sm90", refusal, candidates, {}, make};

}  // namespace lathe
