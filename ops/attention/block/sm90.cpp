// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the block steps by warpgroups with roles (sm_90a), with the same results as the
// portable kernels within tolerance.
#include "ops/attention/backward/sm90.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>

#include "codegen/base/integers.h"
#include "ops/attention/block/portable.h"
#include "ops/attention/forward/sm90.h"
#include "ops/attention/maps.h"
#include "templates/params/tensor_map.h"
// It uses the one above.
#include "templates/params/attention_backward_warpgroups.h"

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

KernelSpec forward_spec(const AttentionProblem& problem) {
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

KernelSpec backward_spec(const AttentionProblem& problem) {
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

class Warpgroups final : public AttentionBlock {
 public:
  using AttentionBlock::AttentionBlock;

  Status launch(const AttentionBlockCall& of) const override {
    const auto& [sequences, heads, kv_heads, seq_q, seq_k] = of.shape;
    const AttentionProblem& problem = of.request.attention.problem;
    const auto& t = of.call.tensors;
    AttentionBlockWarpgroupsParams p = {};
    fill(of, &p.block.forward);
    of.fill_ranges(&p.block);
    p.block.key_ranges = of.position_ranges;
    p.block.first = of.request.first ? 1 : 0;
    const MappedRows q =
        rows_of(t[attention_block::q], of.packed(), problem.head_dim, seq_q, heads, sequences);
    LATHE_TRY(kernel.encode(0, token_map(false, q), &p.q));
    if (seq_k > 0) {
      const MappedRows k =
          rows_of(t[attention_block::k], of.packed(), problem.head_dim, seq_k, kv_heads, sequences);
      const MappedRows v = rows_of(t[attention_block::v], of.packed(), problem.value_dim, seq_k,
                                   kv_heads, sequences);
      LATHE_TRY(kernel.encode(1, attention_range_map(k), &p.k));
      LATHE_TRY(kernel.encode(2, attention_range_map(v), &p.v));
    }
    const int64_t tiles = attention_forward_blocks(tiling(), of.shape);
    const int64_t most = free_multiprocessors(of);
    p.order = attention_tile_order(tiling(), p.block.forward, tiles, most);
    return kernel.launch(std::min<int64_t>(p.order.blocks, most), &p, of.call.stream);
  }
};

class WarpgroupsBackward final : public AttentionBlockBackward {
 public:
  using AttentionBlockBackward::AttentionBlockBackward;

  Status launch(const AttentionBlockCall& of,
                const AttentionBlockBackwardLaunch& launch) const override {
    AttentionBlockBackwardWarpgroupsParams p = {};
    fill(of, launch, &p.main.backward);
    p.ranges = of.call.tensors[attention_block_bwd::ranges].data;
    p.range_count = static_cast<int>(of.call.extents[Dim::NP]);
    p.first_keys = of.request.first_keys ? 1 : 0;
    // Without a row nobody reads anything.
    if (of.shape.seq_q > 0) LATHE_TRY(encode(of, &p.main));
    return kernel.launch(launch.main_blocks, &p, of.call.stream);
  }

 private:
  Status encode(const AttentionBlockCall& of, AttentionBackwardWarpgroupsParams* p) const {
    namespace tensors = attention_block_bwd;
    const auto& [sequences, heads, kv_heads, seq_q, seq_k] = of.shape;
    const int64_t head_dim = of.request.attention.problem.head_dim;
    const int64_t value_dim = of.request.attention.problem.value_dim;
    const auto rows = [&](int tensor, int64_t columns, int64_t tokens, int64_t its_heads) {
      return rows_of(of.call.tensors[tensor], of.packed(), columns, tokens, its_heads, sequences);
    };
    LATHE_TRY(
        kernel.encode(0, attention_range_map(rows(tensors::q, head_dim, seq_q, heads)), &p->q));
    LATHE_TRY(
        kernel.encode(1, token_map(false, rows(tensors::k, head_dim, seq_k, kv_heads)), &p->k));
    LATHE_TRY(
        kernel.encode(2, token_map(false, rows(tensors::v, value_dim, seq_k, kv_heads)), &p->v));
    return kernel.encode(3, attention_range_map(rows(tensors::dout, value_dim, seq_q, heads)),
                         &p->dout);
  }
};

std::string refusal(const AttentionProblem& problem, const DeviceFacts& facts) {
  if (std::string why = attention_warpgroups_refusal(problem, facts); !why.empty()) return why;
  if (!problem.ranges) return "rows and keys have positions of their own";
  return facts.rejection(kKernel);
}

std::vector<KernelSpec> candidates(const AttentionProblem& problem, const DeviceFacts&) {
  return {forward_spec(problem)};
}

std::unique_ptr<AttentionBlock> make(KernelSpec spec, const AttentionProblem&,
                                     const DeviceFacts& facts) {
  return std::make_unique<Warpgroups>(std::move(spec), facts);
}

std::string backward_refusal(const AttentionProblem& problem, const DeviceFacts& facts) {
  const AttentionProblem own = attention_block_problem(problem);
  std::string why = attention_backward_warpgroups_refusal(own, facts);
  if (!why.empty()) return why;
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

std::vector<KernelSpec> backward_candidates(const AttentionProblem& problem, const DeviceFacts&) {
  return {backward_spec(problem)};
}

std::unique_ptr<AttentionBlockBackward> make_backward(KernelSpec spec, const AttentionProblem&,
                                                      const DeviceFacts& facts) {
  return std::make_unique<WarpgroupsBackward>(std::move(spec), facts);
}

}  // namespace

const AttentionBlockStep kAttentionBlockSm90 = {
    "sm90", refusal, candidates, {"m", "n", "stages"}, make};
const AttentionBlockBackwardStep kAttentionBlockBackwardSm90 = {"sm90",
                                                                backward_refusal,
                                                                backward_candidates,
                                                                {"m", "n", "stages", "width_warps"},
                                                                make_backward};

}  // namespace lathe
