// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/sm90/block_kernels.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/attention/sm90/backward_kernels.h"
#include "ops/attention/sm90/kernels.h"

namespace lathe {
namespace {

constexpr const char* kKernel = "attention_block_warpgroups";
constexpr const char* kBackward = "attention_block_backward_warpgroups";
// Bytes that messages and the queue of the walking warp take: sm90/attention_block_warpgroups.cuh.
constexpr int kMessageBytes = 192, kWalkBytes = 256;
constexpr int kTileBytes = 1024;  // where tiles may begin

// A box of one of these tensors ends where its range does, and moves from sequence to sequence: the
// map has a dimension more.
void end_at_ranges(KernelSpec* spec, std::initializer_list<std::string_view> tensors) {
  for (TensorMapRecipe& map : spec->tensor_maps) {
    if (std::find(tensors.begin(), tensors.end(), map.field) != tensors.end()) map.box.push_back(1);
  }
}

// Takes over the constants of the portable step, whose geometry serves both. There is one kernel
// whether its blocks take turns or not.
void take_constants(KernelSpec portable, KernelSpec* spec) {
  spec->constants = std::move(portable.constants);
  std::erase_if(spec->constants, [](const Constant& each) { return each.name == "persistent"; });
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
  take_constants(attention_block_spec(problem, tile), &spec);
  end_at_ranges(&spec, {"k", "v"});
  return spec;
}

const char* attention_block_backward_warpgroups_refusal(const AttentionProblem& problem,
                                                        const DeviceFacts& facts) {
  const AttentionProblem own = attention_block_problem(problem);
  if (const char* refusal = attention_backward_warpgroups_refusal(own, facts)) return refusal;
  const int width = attention_padded_width(problem.head_dim);
  if (width != attention_padded_width(problem.value_dim) || (width != 64 && width != 128)) {
    return "there is no tile for the head widths";
  }
  if (problem.deterministic) return "blocks add to dq in no order";
  if (!problem.mods.empty()) return "there are mods";
  if (!problem.ranges) return "rows and keys have positions of their own";
  if (problem.persistent) return "a block has one tile of keys, and sm_margin wants turns";
  return facts.rejection(kBackward);
}

KernelSpec attention_block_backward_warpgroups_spec(const AttentionProblem& problem) {
  KernelSpec spec = attention_backward_warpgroups_spec(attention_block_problem(problem), false);
  const AttentionBackwardTile tile = {static_cast<int>(spec.constant("m")),
                                      static_cast<int>(spec.constant("n")),
                                      static_cast<int>(spec.constant("stages")), spec.threads / 32};
  spec.set(LATHE_TEMPLATE("attention/sm90", "attention_block_backward_warpgroups",
                          AttentionBlockBackwardWarpgroupsParams, first_keys));
  spec.smem = "AttentionBlockBackwardWarpgroupsSmem";
  // Behind the backward's tiles a copy of the keys begins, as tiles of wgmma do.
  const int keys = 2 * tile.keys * static_cast<int>(spec.constant("width"));
  spec.smem_bytes = round_up(spec.smem_bytes, kTileBytes) + keys + kMessageBytes + kWalkBytes;
  take_constants(attention_block_backward_spec(problem, tile), &spec);
  end_at_ranges(&spec, {"q", "dout"});
  return spec;
}

}  // namespace lathe
