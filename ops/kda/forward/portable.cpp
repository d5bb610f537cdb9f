// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the forward walk with mma.sync and cp.async, for every architecture and element.
#include <memory>
#include <utility>

#include "codegen/base/invalid.h"
#include "ops/kda/forward/step.h"

namespace lathe {
namespace {

class Portable final : public KdaForward {
 public:
  explicit Portable(KernelSpec spec) : KdaForward(std::move(spec)), beside_{kernel->threads / 32} {}

  int64_t columns() const override { return beside_.values(); }
  KdaWalkTile beside() const override { return beside_; }
  int64_t tensor_ops(const KdaProblem& problem) const override {
    return kda_walk_ops(problem, {columns(), 2, 2 * kda_sum_parts(problem)});
  }
  Status launch(const KdaForwardParams& p, int64_t blocks, CUstream_st* stream) const override {
    return kernel.launch(blocks, &p, stream);
  }

 private:
  KdaWalkTile beside_;
};

// The walks of the other direction and the summaries take the tile over: a choice is about all of
// these.
std::vector<KernelSpec> candidates(const KdaProblem& problem, const DeviceFacts& facts) {
  const bool back = problem.backward || problem.dinitial_state;
  std::vector<KernelSpec> specs;
  for (const KdaWalkTile& tile : kda_walk_candidates(problem, facts)) {
    specs.push_back(kda_forward_spec(problem, tile));
    specs.back().also_decides =
        text(" back=", back, " segmented=", problem.segmented, " warmup=", problem.warmup);
  }
  return specs;
}

std::unique_ptr<KdaForward> make(KernelSpec spec, const KdaProblem&, const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec));
}

}  // namespace

KernelSpec kda_forward_spec(const KdaProblem& problem, const KdaWalkTile& tile) {
  KernelSpec spec =
      kda_walk_spec(LATHE_TEMPLATE("kda", "kda_forward", KdaForwardParams, chunks), problem, tile);
  spec.add({Constant::flag("initial", "kInitialState", problem.initial_state),
            Constant::flag("final", "kFinalState", problem.final_state),
            Constant::flag("chunks", "kChunkStates", problem.chunk_states),
            Constant::flag("output", "kOutput", !problem.no_output),
            Constant::flag("saved", "kSaved", problem.saves),
            Constant::flag("ranks", "kRanks", problem.ranks)});
  add_kda_pool(problem, problem.checkpoints, &spec);
  // Segments that start early, from a zero state: no launch runs before such a walk.
  if (problem.warmup) {
    spec.kernel = "kda_forward_warmup", spec.source = "kda/kda_forward_warmup.cuh";
  }
  return spec;
}

const KdaForwardStep kKdaForwardPortable = {"portable", kda_walk_refusal, candidates, {}, make};

}  // namespace lathe
