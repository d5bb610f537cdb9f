// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of chunked KDA: which kernels a problem needs, with which tiles and constants.
#include "ops/kda/chunked_kernels.h"

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/kda/forward_warpgroups.h"
#include "ops/tiles.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

constexpr int kPanel = 64;  // columns that rows in shared memory come in
constexpr int kBackwardThreads = 256, kFinishThreads = 256;
constexpr int kPassKeys = 32;  // columns of K that the gradients are worked on at a time

// Returns the bytes of a block of 16 tokens: three tiles of 16-bit rows and two of pairs (three
// planes of each for float32), the decay, three numbers a token, and float32 pairs.
int block_bytes(const KdaProblem& problem) {
  const int width = kda_padded_keys(problem), planes = problem.element == Dtype::f32 ? 3 : 1;
  return round_up(planes * (3 * 16 * 2 * width + 2 * 512) + 4 * width + 3 * 64 + 16 * 4 * 24, 1024);
}

std::vector<Constant> constants_of(const KdaProblem& problem) {
  return {
      Constant::type("element", "Element", problem.element),
      Constant::type("g", "GateElement", problem.gate),
      Constant::type("beta", "BetaElement", problem.beta),
      // Without packed lengths the type of the offsets changes nothing: one word for all.
      Constant::type("cu", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32),
      Constant::integer("width", "kWidth", kda_padded_keys(problem)),
      Constant::integer("vector", "kVectorBytes", problem.vector_bytes),
      Constant::integer("gate", "kGate", problem.gate_kind),
      Constant::flag("A_log", "kAlog", problem.A_log),
      Constant::flag("dt_bias", "kDtBias", problem.dt_bias),
      Constant::flag("sigmoid", "kSigmoid", problem.sigmoid),
      Constant::flag("l2norm", "kL2Norm", problem.l2norm),
      Constant::flag("packed", "kPacked", problem.packed),
  };
}

// Returns a walk with the constants that both directions have.
KernelSpec walk_spec(const Template& from, const KdaProblem& problem, const KdaWalkTile& tile) {
  KernelSpec spec = shared_spec(from, "KdaScanSmem", kda_walk_smem(problem, tile), 32 * tile.warps,
                                constants_of(problem));
  spec.add({Constant::flag("v_first", "kStateVFirst", problem.state_v_first)});
  return spec;
}

}  // namespace

int kda_padded_keys(const KdaProblem& problem) { return round_up(problem.key_dim, kPanel); }

int kda_walk_smem(const KdaProblem& problem, const KdaWalkTile& tile) {
  const int rows =
      problem.element == Dtype::f32 ? 4 * (tile.values() + 4) : 2 * round_up(tile.values(), kPanel);
  return tile.warps * block_bytes(problem) + tile.values() * rows;
}

// Tiles of do, y, vn and of the two states, 64 or 32 columns of V; pairs; sums of 32 columns of K
// and of 64 rows, some of them for nine heads of a group; and what waits for the norms of rows.
int kda_backward_smem(const KdaProblem& problem) {
  const bool split = problem.element == Dtype::f32;
  const int planes = split ? 3 : 1, values = split ? 32 : 64, heads = problem.grouped ? 9 : 1;
  const int tiles = planes * (3 * 64 * values * 2 + 2 * values * kPassKeys * 2);
  const int pairs = planes * 2 * 10 * 512;
  const int columns = (4 + 6 + 4 + 17 + 4) * 4 * kPassKeys + 64;
  const int rows = 2 * 256 + 512 + 2 * 512 + heads * 3 * 256;
  const int width = kda_padded_keys(problem);
  const bool waits = problem.l2norm && !split && width <= 128 && !problem.grouped;
  const int waiting = waits ? (width / kPassKeys - 1) * 16 * 4 * kBackwardThreads : 0;
  return round_up(tiles + pairs + columns + rows + waiting, 128);
}

std::vector<KdaWalkTile> kda_walk_candidates(const KdaProblem& problem, const DeviceFacts& facts) {
  std::vector<KdaWalkTile> candidates;
  for (const int warps : {8, 4, 2, 1}) {
    const KdaWalkTile tile = {warps};
    // No half of a block without a value, unless there is no smaller block.
    if (warps > 1 && tile.values() >= 2 * problem.value_dim) continue;
    if (kda_walk_smem(problem, tile) > facts.shared_bytes_per_block) continue;
    candidates.push_back(tile);
  }
  return candidates;
}

namespace {

// One tile serves the walks of both directions and what goes before them in segments: the tuning
// key is about all of these.
KernelSpec question_spec(const KdaProblem& problem, const KdaWalkTile& tile) {
  const bool back = problem.backward || problem.dinitial_state;
  if (!problem.forward) return kda_backward_scan_spec(problem, tile);
  KernelSpec spec = kda_forward_spec(problem, tile);
  spec.add({Constant::flag("back", "", back), Constant::flag("segmented", "", problem.segmented),
            Constant::flag("warmup", "", problem.warmup)});
  return spec;
}

}  // namespace

Result<KdaWalkTile> kda_walk_choose(const KdaProblem& problem, const DeviceFacts& facts) {
  return choose_tile(
      kda_walk_candidates(problem, facts), facts, {},
      [&](const KdaWalkTile& tile) { return question_spec(problem, tile); }, "kda: a block",
      [&] { return kda_walk_smem(problem, {1}); });
}

KernelSpec kda_forward_spec(const KdaProblem& problem, const KdaWalkTile& tile) {
  KernelSpec spec =
      walk_spec(LATHE_TEMPLATE("kda", "kda_forward", KdaForwardParams, chunks), problem, tile);
  spec.add({Constant::flag("initial", "kInitialState", problem.initial_state),
            Constant::flag("final", "kFinalState", problem.final_state),
            Constant::flag("chunks", "kChunkStates", problem.chunk_states),
            Constant::flag("output", "kOutput", true),
            Constant::flag("saved", "kSaved", problem.saves),
            Constant::flag("ranks", "kRanks", problem.ranks)});
  return spec;
}

KernelSpec kda_backward_scan_spec(const KdaProblem& problem, const KdaWalkTile& tile) {
  KernelSpec spec = walk_spec(
      LATHE_TEMPLATE("kda", "kda_backward_scan", KdaBackwardScanParams, reserved), problem, tile);
  spec.add(
      {Constant::flag("initial", "kInitialState", problem.initial_state && problem.recomputes()),
       Constant::flag("final", "kFinalState", false),
       Constant::flag("chunks", "kChunkStates", false), Constant::flag("output", "kOutput", false),
       Constant::flag("saved", "kSaved", problem.recomputes()),
       Constant::flag("dht", "kFinalStateGrad", problem.dht),
       Constant::flag("dinitial", "kInitialStateGrad", problem.dinitial_state),
       Constant::flag("ranks", "kRanks", problem.ranks)});
  return spec;
}

KernelSpec kda_backward_spec(const KdaProblem& problem) {
  KernelSpec spec = shared_spec(LATHE_TEMPLATE("kda", "kda_backward", KdaBackwardParams, reserved),
                                "KdaBackwardSmem", kda_backward_smem(problem), kBackwardThreads,
                                constants_of(problem));
  spec.add({Constant::flag("grouped", "kGrouped", problem.grouped)});
  return spec;
}

KernelSpec kda_backward_finish_spec() {
  return shared_spec(
      LATHE_TEMPLATE("kda", "kda_backward_finish", KdaBackwardFinishParams, reserved),
      "KdaBackwardFinishSmem", 4 * kFinishThreads, kFinishThreads);
}

namespace {

// Holds the tile of the portable walks, and why none is by warpgroups; empty: they may be.
struct KdaWalkChoice {
  KdaWalkTile tile;
  std::string refusal;
  bool tuned = false;  // a measurement refused it
};

// Lets the forward by warpgroups compete with the portable ones, where it covers the problem.
Result<KdaWalkChoice> choose_walk(const KdaProblem& problem, const DeviceFacts& facts) {
  KdaWalkChoice out = {{}, kda_forward_warpgroups_refusal(problem, facts), false};
  const std::vector<KdaWalkTile> tiles = kda_walk_candidates(problem, facts);
  if (!out.refusal.empty() || tiles.empty()) {
    LATHE_ASSIGN(out.tile, kda_walk_choose(problem, facts));
    return out;
  }
  const auto portable = [&](const KdaWalkTile& tile) { return kda_forward_spec(problem, tile); };
  const KernelSpec own = kda_forward_warpgroups_spec(problem, portable(tiles.front()));
  const CandidateIndex chosen = pick({{{own}, {}}, group_of(tiles, {}, portable)}, facts);
  out.tile = tiles[chosen.group > 0 ? chosen.spec : 0];
  out.tuned = chosen.group > 0;
  if (out.tuned) out.refusal = "the tuned choice is a portable kernel";
  return out;
}

// Says of a portable kernel why it is none by warpgroups.
KernelSpec refused(KernelSpec portable, const std::string& refusal) {
  portable.family_reason = text("not sm90: ", refusal);
  return portable;
}

}  // namespace

Result<KdaChunkedKernels> kda_chunked_kernels(const KdaProblem& problem, const DeviceFacts& facts) {
  KdaChunkedKernels kernels;
  LATHE_ASSIGN(const KdaWalkChoice choice, choose_walk(problem, facts));
  const KdaWalkTile& tile = choice.tile;
  if (!problem.forward && !problem.backward && !problem.dinitial_state) return kernels;
  KernelSlot portable;
  if (problem.forward) {
    portable = kda_forward_spec(problem, tile);
    const KernelSpec other = problem.warmup ? kda_forward_warmup_spec(*portable) : *portable;
    kernels.forward = choice.refusal.empty() ? kda_forward_warpgroups_spec(problem, *portable)
                                             : refused(other, choice.refusal);
  }
  if (problem.backward || problem.dinitial_state) {
    kernels.scan = kda_backward_scan_spec(problem, tile);
  }
  if (portable || kernels.scan) kernels.walk = portable ? *portable : *kernels.scan;
  if (problem.segmented || problem.ranks) {
    const KdaSummaryParts parts = {problem.forward || problem.recomputes(),
                                   kernels.scan.has_value(), problem.initial_state, problem.dht};
    const KernelSpec summary = kda_summary_spec(kernels.walk, parts);
    std::string refusal = kda_summary_warpgroups_refusal(problem, parts, facts);
    if (refusal.empty() && choice.tuned) refusal = choice.refusal;
    kernels.summary =
        refusal.empty() ? kda_summary_warpgroups_spec(problem, summary) : refused(summary, refusal);
    if (problem.segmented) kernels.merge = kda_merge_spec(kernels.walk, parts);
    if (problem.ranks) kernels.compose = kda_compose_spec(kernels.walk);
  }
  if (!problem.backward) return kernels;
  if (kda_backward_smem(problem) > facts.shared_bytes_per_block) {
    return unsupported(text("kda: the gradients of K = ", problem.key_dim,
                            problem.grouped ? " with value heads that share keys" : "", " need ",
                            kda_backward_smem(problem), " bytes of shared memory, ", facts.arch,
                            " allows ", facts.shared_bytes_per_block));
  }
  kernels.backward = kda_backward_spec(problem);
  if (problem.dA_log || problem.ddt_bias) kernels.finish = kda_backward_finish_spec();
  return kernels;
}

}  // namespace lathe
