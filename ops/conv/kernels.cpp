// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of the causal_conv1d family: which kernels a problem needs and with which constants.
#include "ops/conv/kernels.h"

#include "codegen/base/invalid.h"
#include "templates/params/conv_lines.h"
#include "templates/params/conv_slots.h"

namespace lathe {
namespace {

// At most so much shared memory is asked for, so that several blocks fit on a multiprocessor.
constexpr int kMostShared = 80 * 1024;
constexpr int kWeightGradWarps = 8;
constexpr int kHaloThreads = 128;

// Warps of a multiprocessor that a walk leaves registers for, as many as need no spills.
int forward_warps(const ConvProblem& problem) {
  if (problem.width <= 4 && bytes_of(problem.x) == 2 && !problem.over_slots()) return 28;
  return problem.width <= 5 ? 20 : 16;
}
int backward_warps(const ConvProblem& problem) {
  return problem.width <= 4 ? 16 : problem.width == 5 ? 12 : 8;
}

// Bytes per access: the window, the filter and its gradient of four channels fit in registers, and
// leave room for many warps.
int four_channels(const ConvProblem& problem) {
  return std::min(problem.vector_bytes, 4 * bytes_of(problem.x));
}
struct SharedParts {
  int filter = 0, state = 0;  // bytes
};

// Rows of the ring of each of a warp's tensors: together so many bytes are under way that a few
// warps keep memory busy, in whole groups of kConvGroup (templates/conv/ring.cuh).
constexpr int kGroupRows = 4, kLeastRows = 8, kMostRows = 24;
constexpr int kWarpBytesUnderWay = 6144;
int ring_rows(int vector, int tensors) {
  const int rows = kWarpBytesUnderWay / (32 * vector * std::max(tensors, 1));
  return std::clamp(rows / kGroupRows * kGroupRows, kLeastRows, kMostRows);
}
// Bytes of a warp's rings, and of the rows before its first one if it has inputs.
int rings_bytes(const ConvProblem& problem, int tensors, bool inputs) {
  const int vector = four_channels(problem);
  const int rows = tensors * ring_rows(vector, tensors) + (inputs ? problem.width - 1 : 0);
  return 32 * vector * rows;
}
int forward_rings(const ConvProblem& problem) { return problem.residual ? 2 : 1; }
int backward_rings(const ConvProblem& problem) {
  return problem.silu || problem.weight_grad ? 2 : 1;
}
SharedParts shared_parts(const ConvProblem& problem, int vector) {
  return {conv_filter_bytes(problem, vector),
          4 * conv_tap_pitch(problem.width, 32 * vector / bytes_of(problem.x)) * problem.width};
}

// Columns of a state that the forward over slots has: none without states.
int slot_columns(const ConvProblem& problem) {
  if (problem.pool) return problem.columns;
  return problem.initial_state || problem.final_state ? problem.width : 0;
}

int forward_smem(const ConvProblem& problem, const ConvTile& tile) {
  const SharedParts parts = shared_parts(problem, four_channels(problem));
  if (problem.over_slots()) {
    return parts.filter + tile.warps * (32 * four_channels(problem) * slot_columns(problem) +
                                        rings_bytes(problem, forward_rings(problem), true));
  }
  const bool states = problem.initial_state || problem.final_state;
  return parts.filter + tile.warps * ((states ? parts.state : 0) +
                                      rings_bytes(problem, forward_rings(problem), true));
}

int backward_smem(const ConvProblem& problem, const ConvTile& tile) {
  const int vector = four_channels(problem), rings = backward_rings(problem);
  const SharedParts parts = shared_parts(problem, vector);
  const bool states = problem.initial_state || problem.dfinal_state || problem.dinitial_state;
  const int walk = parts.filter + tile.warps * ((states ? parts.state : 0) +
                                                rings_bytes(problem, rings, rings == 2));
  const int sums = 4 * tile.warps * (problem.width + 1) * 32 * vector / bytes_of(problem.x);
  return problem.weight_grad ? std::max(walk, sums) : walk;
}

std::vector<Constant> common_constants(const ConvProblem& problem, bool weight, int vector) {
  std::vector<Constant> out = {Constant::type("x", "Element", problem.x)};
  if (weight) out.push_back(Constant::type("weight", "WeightElement", problem.weight));
  // Without packed lengths the type of the offsets changes nothing: one word for all.
  out.push_back(
      Constant::type("offsets", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32));
  out.push_back(Constant::integer("width", "kWidth", problem.width));
  out.push_back(Constant::integer("vector", "kVectorBytes", vector));
  return out;
}

// Completes a kernel whose warps walk runs of tokens. `own` are the constants that the other walk
// lacks.
KernelSpec walk_spec(KernelSpec spec, const ConvProblem& problem, const ConvTile& tile, int ring,
                     std::initializer_list<Constant> own) {
  spec.add({Constant::integer("tokens", "kTokens", tile.tokens),
            Constant::integer("ring", "kRing", ring), Constant::flag("silu", "kSilu", problem.silu),
            Constant::flag("bias", "kBias", problem.bias)});
  spec.add(own);
  spec.add({Constant::flag("packed", "kPacked", problem.packed),
            Constant::flag("halo", "kHalo", problem.halo)});
  return spec;
}

KernelSpec forward_spec(const ConvProblem& problem, const ConvTile& tile) {
  KernelSpec spec = shared_spec(LATHE_TEMPLATE("conv", "causal_conv1d", ConvForwardParams, run),
                                "ConvForwardSmem", forward_smem(problem, tile), 32 * tile.warps,
                                common_constants(problem, true, four_channels(problem)));
  spec.min_blocks = std::max(forward_warps(problem) / tile.warps, 1);
  // Over slots states are not those of sequences in order.
  const bool slots = problem.over_slots();
  KernelSpec out =
      walk_spec(spec, problem, tile, ring_rows(four_channels(problem), forward_rings(problem)),
                {Constant::flag("residual", "kResidual", problem.residual),
                 Constant::flag("initial_state", "kInitialState", problem.initial_state && !slots),
                 Constant::flag("final_state", "kFinalState", problem.final_state && !slots)});
  if (!slots) return out;
  out.set(LATHE_TEMPLATE("conv", "causal_conv1d_slots", ConvSlotsParams, part_end));
  out.smem = "ConvSlotsSmem";
  out.add({Constant::flag("states", "kStates", slot_columns(problem) > 0),
           Constant::integer("columns", "kColumns", slot_columns(problem)),
           Constant::flag("pool", "kPool", problem.pool),
           Constant::type("index", "Index", problem.pool ? problem.index : Dtype::i32),
           Constant::flag("checkpoints", "kCheckpoints", problem.checkpoints),
           Constant::integer("parts", "kParts", problem.parts)});
  return out;
}

KernelSpec backward_spec(const ConvProblem& problem, const ConvTile& tile) {
  KernelSpec spec =
      shared_spec(LATHE_TEMPLATE("conv", "causal_conv1d_bwd", ConvBackwardParams, reserved),
                  "ConvBackwardSmem", backward_smem(problem, tile), 32 * tile.warps,
                  common_constants(problem, true, four_channels(problem)));
  spec.min_blocks = std::max(backward_warps(problem) / tile.warps, 1);
  KernelSpec out =
      walk_spec(spec, problem, tile, ring_rows(four_channels(problem), backward_rings(problem)),
                {Constant::flag("dx", "kDx", problem.backward),
                 Constant::flag("weight_grad", "kWeightGrad", problem.weight_grad),
                 Constant::flag("initial_state", "kInitialState", problem.initial_state),
                 Constant::flag("dfinal_state", "kDfinalState", problem.dfinal_state),
                 Constant::flag("dinitial_state", "kDinitialState", problem.dinitial_state)});
  if (problem.wide_state_grads) out.add({Constant::flag("wide_states", "kWideStates", true)});
  if (problem.by_pieces) out.add({Constant::flag("pieces", "kPieces", true)});
  return out;
}

// `by_tap`: the sums stay float32 rows of channels, [W, D] and [D], as the partials are.
KernelSpec weight_grad_spec(const ConvProblem& problem, bool by_tap) {
  return shared_spec(
      LATHE_TEMPLATE("conv", "causal_conv1d_weight_grad", ConvWeightGradParams, channels),
      "ConvWeightGradSmem",
      4 * kWeightGradWarps * (problem.width + 1) * conv_tap_pitch(problem.width, 32),
      32 * kWeightGradWarps,
      {Constant::type("output", "Output", by_tap ? Dtype::f32 : problem.weight),
       Constant::integer("width", "kWidth", problem.width),
       Constant::flag("bias", "kBias", problem.bias), Constant::flag("by_tap", "kByTap", by_tap)});
}

void add_halo_kernels(ConvKernels* kernels, const ConvProblem& problem, bool backward) {
  const auto spec = [&](const Template& from, int vector, std::initializer_list<Constant> own) {
    KernelSpec out = KernelSpec::of(from, kHaloThreads, common_constants(problem, false, vector));
    out.add(own);
    out.add({Constant::flag("packed", "kPacked", problem.packed)});
    return out;
  };
  kernels->halo_pack =
      spec(LATHE_TEMPLATE("conv", "causal_conv1d_halo_pack", ConvHaloPackParams, end),
           problem.vector_bytes,
           {Constant::flag("initial_state", "kInitialState", problem.initial_state)});
  kernels->halo_join =
      spec(LATHE_TEMPLATE("conv", "causal_conv1d_halo_join", ConvHaloJoinParams, begin),
           problem.vector_bytes, {});
  if (!backward) return;
  kernels->halo_add =
      spec(LATHE_TEMPLATE("conv", "causal_conv1d_halo_add", ConvHaloAddParams, end),
           four_channels(problem),
           {Constant::flag("dinitial_state", "kDinitialState", problem.dinitial_state)});
}

}  // namespace

KernelSpec conv_lines_spec(Dtype x) {
  return KernelSpec::of(LATHE_TEMPLATE("conv", "causal_conv1d_lines", ConvLinesParams, adds),
                        kHaloThreads, {Constant::type("x", "Element", x)});
}

namespace {

Status check_shared(const char* kernel, int bytes, const DeviceFacts& facts) {
  const std::string refusal = conv_shared_refusal(kernel, bytes, facts);
  return refusal.empty() ? Status() : unsupported(refusal);
}

constexpr ConvTile kTiles[] = {{64, 4}, {128, 4}, {32, 4}, {64, 8}, {32, 8}, {128, 2}};

int tile_smem(const ConvProblem& problem, const ConvTile& tile) {
  return std::max(forward_smem(problem, tile), backward_smem(problem, tile));
}

}  // namespace

// The shared-memory sums of the templates, which the emitted units assert.
int conv_tap_pitch(int rows, int channels) { return channels + (32 / rows + 3) / 4 * 4; }

int conv_filter_bytes(const ConvProblem& problem, int vector) {
  const int pitch = conv_tap_pitch(problem.width, 32 * vector / bytes_of(problem.x));
  return 4 * pitch * (problem.width + (problem.bias ? 1 : 0));
}

int conv_shared_limit(const DeviceFacts& facts) {
  return std::min(kMostShared, facts.shared_bytes_per_block);
}

std::string conv_shared_refusal(const char* kernel, int bytes, const DeviceFacts& facts) {
  if (bytes <= conv_shared_limit(facts)) return {};
  return text(kernel, ": a block needs at least ", bytes, " bytes of shared memory, ", facts.arch,
              " allows ", conv_shared_limit(facts));
}

std::vector<ConvTile> conv_candidates(const ConvProblem& problem, const DeviceFacts& facts) {
  return tiles_that(kTiles, [&](const ConvTile& tile) {
    return tile_smem(problem, tile) <= conv_shared_limit(facts);
  });
}

Result<ConvTile> conv_choose(const ConvProblem& problem, const DeviceFacts& facts) {
  const std::vector<ConvTile> candidates = conv_candidates(problem, facts);
  if (!candidates.empty()) return candidates.front();
  const auto smem = [&](const ConvTile& tile) { return tile_smem(problem, tile); };
  return check_shared("causal_conv1d", least_bytes(kTiles, smem), facts);
}

Result<ConvKernels> conv_kernels(const ConvProblem& problem, const DeviceFacts& facts,
                                 bool reduce_over_ranks) {
  const bool backward = problem.backward || problem.weight_grad || problem.dinitial_state;
  ConvKernels kernels;
  if (problem.forward || backward) LATHE_TRY(conv_choose(problem, facts));
  const auto walk = [&](auto spec_of) {
    const auto of = [&](const ConvTile& tile) { return spec_of(problem, tile); };
    return of(pick(conv_candidates(problem, facts), facts, {"tokens"}, of));
  };
  if (problem.forward) kernels.forward = walk(forward_spec);
  if (backward) kernels.backward = walk(backward_spec);
  if (problem.weight_grad) {
    if (!problem.by_pieces) kernels.weight_grad = weight_grad_spec(problem, reduce_over_ranks);
    if (reduce_over_ranks || problem.by_pieces) {
      kernels.weight_grad_cast = weight_grad_spec(problem, false);
    }
  }
  if (problem.halo && (problem.forward || backward)) {
    add_halo_kernels(&kernels, problem, backward);
  }
  if (!problem.weight_grad) return kernels;
  const KernelSlot& sums = kernels.weight_grad ? kernels.weight_grad : kernels.weight_grad_cast;
  LATHE_TRY(check_shared("causal_conv1d_weight_grad", sums->smem_bytes, facts));
  return kernels;
}

}  // namespace lathe
