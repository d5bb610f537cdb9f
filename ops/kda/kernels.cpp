// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Specs of the KDA family: which kernels a problem needs and with which constants.
#include "ops/kda/kernels.h"

#include <algorithm>
#include <cstddef>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "codegen/base/text.h"
#include "codegen/choice.h"
#include "templates/params/kda.h"

namespace lathe {
namespace {

constexpr int kWidthStep = 4, kLeastWidth = 8, kMostWidth = 256;
// K up to which a quarter of a warp spans it with one block of four rows a lane.
constexpr int kNarrowKeys = 32;

int key_lanes_of(const KdaProblem& problem) { return problem.key_dim <= kNarrowKeys ? 8 : 16; }

bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}
bool is_index(Dtype dtype) { return dtype == Dtype::i32 || dtype == Dtype::i64; }

}  // namespace

Status kda_check(const KdaProblem& problem) {
  for (const auto& [name, dtype] : {std::pair("q", problem.element), std::pair("g", problem.gate),
                                    std::pair("beta", problem.beta)}) {
    if (is_float(dtype)) continue;
    return unsupported(text("kda: ", name, " is ", word(dtype), "; allowed are f32, f16, bf16"));
  }
  if (problem.packed && !is_index(problem.cu_seqlens)) {
    return unsupported(
        text("kda: cu_seqlens is ", word(problem.cu_seqlens), "; allowed are i32, i64"));
  }
  if (problem.states != kKdaStatesPlain && !is_index(problem.index)) {
    return unsupported(
        text("kda: state_indices is ", word(problem.index), "; allowed are i32, i64"));
  }
  for (const auto& [name, width] :
       {std::pair("K", problem.key_dim), std::pair("V", problem.value_dim)}) {
    if (width >= kLeastWidth && width <= kMostWidth && width % kWidthStep == 0) continue;
    return unsupported(text("kda: ", name, " is ", width, "; allowed are multiples of ", kWidthStep,
                            " from ", kLeastWidth, " to ", kMostWidth));
  }
  return {};
}

int kda_recurrent_smem(const KdaProblem& problem, const KdaRecurrentTile& tile) {
  const int width = round_up(problem.key_dim, 4 * tile.key_lanes);
  return 4 * 2 * tile.warps * (3 * width + tile.columns() + 4);
}

std::vector<KdaRecurrentTile> kda_recurrent_candidates(const KdaProblem& problem,
                                                       const DeviceFacts& facts) {
  const int key_lanes = key_lanes_of(problem);
  std::vector<KdaRecurrentTile> candidates;
  for (const int warps : {4, 8, 2, 1}) {
    const KdaRecurrentTile tile = {key_lanes, warps};
    // No warp without a column, unless there is no smaller block.
    if (warps > 1 && tile.columns() >= 2 * problem.value_dim) continue;
    if (kda_recurrent_smem(problem, tile) > facts.shared_bytes_per_block) continue;
    candidates.push_back(tile);
  }
  return candidates;
}

Result<KdaRecurrentTile> kda_recurrent_choose(const KdaProblem& problem, const DeviceFacts& facts) {
  const std::vector<KdaRecurrentTile> candidates = kda_recurrent_candidates(problem, facts);
  if (!candidates.empty()) {
    return pick(candidates, facts, {},
                [&](const KdaRecurrentTile& tile) { return kda_recurrent_spec(problem, tile); });
  }
  const int least = kda_recurrent_smem(problem, {key_lanes_of(problem), 1});
  return unsupported(text("kda_recurrent: a block needs at least ", least,
                          " bytes of shared memory, ", facts.arch, " allows ",
                          facts.shared_bytes_per_block));
}

KernelSpec kda_recurrent_spec(const KdaProblem& problem, const KdaRecurrentTile& tile) {
  KernelSpec spec =
      KernelSpec::of(LATHE_TEMPLATE("kda", "kda_recurrent", KdaRecurrentParams, reserved));
  spec.smem = "KdaRecurrentSmem";
  spec.smem_bytes = kda_recurrent_smem(problem, tile);
  spec.threads = 32 * tile.warps;
  const bool pool = problem.states != kKdaStatesPlain;
  spec.constants = {
      Constant::type("element", "Element", problem.element),
      Constant::type("g", "GateElement", problem.gate),
      Constant::type("beta", "BetaElement", problem.beta),
      // Types of what is not there change nothing: one word for all.
      Constant::type("cu", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32),
      Constant::type("index", "Index", pool ? problem.index : Dtype::i32),
      Constant::integer("k", "kKeyDim", problem.key_dim),
      Constant::integer("v", "kValueDim", problem.value_dim),
      Constant::integer("key_lanes", "kKeyLanes", tile.key_lanes),
      Constant::integer("states", "kStates", problem.states),
      Constant::integer("gate", "kGate", problem.gate_kind),
      Constant::flag("A_log", "kAlog", problem.A_log),
      Constant::flag("dt_bias", "kDtBias", problem.dt_bias),
      Constant::flag("sigmoid", "kSigmoid", problem.sigmoid),
      Constant::flag("l2norm", "kL2Norm", problem.l2norm),
      Constant::flag("v_first", "kStateVFirst", problem.state_v_first),
      Constant::flag("packed", "kPacked", problem.packed),
  };
  return spec;
}

Result<KdaKernels> kda_kernels(const KdaProblem& problem, const DeviceFacts& facts) {
  LATHE_TRY(kda_check(problem));
  KdaKernels kernels;
  if (problem.recurrent) {
    LATHE_ASSIGN(const KdaRecurrentTile tile, kda_recurrent_choose(problem, facts));
    kernels.recurrent = kda_recurrent_spec(problem, tile);
  }
  return kernels;
}

}  // namespace lathe
