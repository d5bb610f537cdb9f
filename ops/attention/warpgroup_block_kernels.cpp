// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/warpgroup_block_kernels.h"

#include <utility>

#include "ops/attention/warpgroup_kernels.h"

namespace lathe {
namespace {

constexpr const char* kKernel = "attention_block_warpgroups";
// Of messages, and of the queue of the warp that walks: sm90/attention_block_warpgroups.cuh.
constexpr int kMessageBytes = 192, kWalkBytes = 256;

// A box of k or v ends where its range of keys does, and moves from sequence to sequence: the map
// has a dimension more.
void add_sequences(KernelSpec* spec) {
  for (TensorMapRecipe& map : spec->tensor_maps) {
    if (map.field != "q") map.box.push_back(1);
  }
}

}  // namespace

const char* attention_block_warpgroups_refusal(const AttentionProblem& problem,
                                               const DeviceFacts& facts) {
  if (const char* refusal = attention_warpgroups_refusal(problem, facts)) return refusal;
  if (!problem.ranges) return "rows and keys have positions of their own";
  return facts.rejection(kKernel);
}

KernelSpec attention_block_warpgroups_spec(const AttentionProblem& problem) {
  KernelSpec spec = attention_warpgroups_spec(attention_block_problem(problem));
  const AttentionTile tile = {static_cast<int>(spec.constant("m")),
                              static_cast<int>(spec.constant("n")),
                              static_cast<int>(spec.constant("stages")), spec.threads / 32};
  spec.set(LATHE_TEMPLATE("attention/sm90", "attention_block_warpgroups",
                          AttentionBlockWarpgroupsParams, order));
  spec.smem = "AttentionBlockWarpgroupsSmem";
  // It has no list of visits, for which the forward has words beside its ring.
  if (spec.constant("listed") != 0) spec.smem_bytes -= 4 * tile.stages;
  spec.smem_bytes += kMessageBytes + kWalkBytes;
  // The constants are those of the portable step, whose geometry serves both.
  spec.constants = attention_block_spec(problem, tile).constants;
  std::erase_if(spec.constants, [](const Constant& each) { return each.name == "persistent"; });
  add_sequences(&spec);
  return spec;
}

bool is_attention_block_warpgroups(const KernelSpec& spec) { return spec.kernel == kKernel; }

}  // namespace lathe
