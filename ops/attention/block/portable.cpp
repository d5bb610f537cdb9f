// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the block steps with the portable forward's and backward's tiles.
#include "ops/attention/block/portable.h"

#include <memory>
#include <utility>

#include "templates/params/attention.h"
#include "templates/params/attention_backward.h"

namespace lathe {

AttentionProblem attention_block_problem(AttentionProblem problem) {
  problem.packed = problem.sinks = problem.pack_gqa = false;
  // Rows of other ranges are masked by the code that masks by window.
  problem.local = problem.local || problem.ranges;
  return problem;
}

KernelSpec attention_block_spec(const AttentionProblem& problem, const AttentionTile& tile) {
  KernelSpec spec = attention_forward_spec(attention_block_problem(problem), tile);
  spec.set(LATHE_TEMPLATE("attention", "attention_block", AttentionBlockParams, first));
  spec.smem = "AttentionBlockSmem";
  for (Constant& constant : spec.constants) {
    if (constant.name == "listed") constant.value = 0;  // it makes its visits as it goes
  }
  spec.constants.push_back(Constant::flag("ranges", "kRanges", problem.ranges));
  spec.constants.push_back(Constant::flag("persistent", "kPersistent", problem.persistent));
  return spec;
}

KernelSpec attention_block_backward_spec(const AttentionProblem& problem,
                                         const AttentionBackwardTile& tile) {
  KernelSpec spec = attention_backward_spec(attention_block_problem(problem), tile, false);
  spec.set(LATHE_TEMPLATE("attention", "attention_block_backward", AttentionBlockBackwardParams,
                          first_keys));
  spec.smem = "AttentionBlockBackwardSmem";
  spec.constants.push_back(Constant::flag("ranges", "kRanges", problem.ranges));
  spec.constants.push_back(Constant::flag("persistent", "kPersistent", problem.persistent));
  return spec;
}

namespace {

class Portable final : public AttentionBlock {
 public:
  using AttentionBlock::AttentionBlock;

  Status launch(const AttentionBlockCall& of) const override {
    AttentionBlockParams p = {};
    fill(of, &p.forward);
    of.fill_ranges(&p);
    p.key_ranges = of.position_ranges;
    p.first = of.request.first ? 1 : 0;
    const int64_t tiles = attention_forward_blocks(tiling(), of.shape);
    return kernel.launch(blocks_for(of, tiles), &p, of.call.stream);
  }
};

class PortableBackward final : public AttentionBlockBackward {
 public:
  using AttentionBlockBackward::AttentionBlockBackward;

  Status launch(const AttentionBlockCall& of,
                const AttentionBlockBackwardLaunch& launch) const override {
    AttentionBlockBackwardParams p = {};
    fill(of, launch, &p.backward);
    of.fill_ranges(&p);
    p.row_ranges = of.position_ranges;
    p.first_keys = of.request.first_keys ? 1 : 0;
    return kernel.launch(blocks_for(of, launch.main_blocks), &p, of.call.stream);
  }
};

std::string refusal(const AttentionProblem& problem, const DeviceFacts& facts) {
  return attention_tile_refusal(attention_block_problem(problem), facts);
}

std::vector<KernelSpec> candidates(const AttentionProblem& problem, const DeviceFacts& facts) {
  std::vector<KernelSpec> specs;
  for (const AttentionTile& tile : attention_candidates(attention_block_problem(problem), facts)) {
    specs.push_back(attention_block_spec(problem, tile));
  }
  return specs;
}

std::unique_ptr<AttentionBlock> make(KernelSpec spec, const AttentionProblem&,
                                     const DeviceFacts& facts) {
  return std::make_unique<Portable>(std::move(spec), facts);
}

std::string backward_refusal(const AttentionProblem& problem, const DeviceFacts& facts) {
  return attention_backward_tile_refusal(attention_block_problem(problem), facts);
}

std::vector<KernelSpec> backward_candidates(const AttentionProblem& problem,
                                            const DeviceFacts& facts) {
  const AttentionProblem own = attention_block_problem(problem);
  std::vector<KernelSpec> specs;
  for (const AttentionBackwardTile& tile : attention_backward_candidates(own, facts)) {
    specs.push_back(attention_block_backward_spec(problem, tile));
  }
  return specs;
}

std::unique_ptr<AttentionBlockBackward> make_backward(KernelSpec spec, const AttentionProblem&,
                                                      const DeviceFacts& facts) {
  return std::make_unique<PortableBackward>(std::move(spec), facts);
}

}  // namespace

const AttentionBlockStep kAttentionBlockPortable = {
    "portable", refusal, candidates, {"m", "n", "stages"}, make};
const AttentionBlockBackwardStep kAttentionBlockBackwardPortable = {
    "portable",
    backward_refusal,
    backward_candidates,
    {"m", "n", "stages", "width_warps"},
    make_backward};

}  // namespace lathe
