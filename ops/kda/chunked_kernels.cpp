// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs of chunked KDA: which kernels a problem needs, with which tiles and constants.
#include "ops/kda/chunked_kernels.h"

#include <utility>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

constexpr int kBackwardThreads = 256, kFinishThreads = 256;
constexpr int kPassKeys = 32;  // columns of K that the gradients are worked on at a time

}  // namespace

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

KernelSpec kda_backward_scan_spec(const KdaProblem& problem, const KdaWalkTile& tile) {
  KernelSpec spec = kda_walk_spec(
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
                                kda_constants(problem));
  spec.add({Constant::flag("grouped", "kGrouped", problem.grouped)});
  return spec;
}

KernelSpec kda_backward_finish_spec() {
  return shared_spec(
      LATHE_TEMPLATE("kda", "kda_backward_finish", KdaBackwardFinishParams, reserved),
      "KdaBackwardFinishSmem", 4 * kFinishThreads, kFinishThreads);
}

namespace {

// Returns the tile of the portable walks, which are one kernel in two directions: the forward's
// step has it, or the walk back chooses.
Result<KdaWalkTile> tile_of(const KdaProblem& problem, const KdaForward* forward,
                            const DeviceFacts& facts) {
  if (forward != nullptr) return forward->beside();
  if (std::string none = kda_walk_refusal(problem, facts); !none.empty()) return unsupported(none);
  return pick(kda_walk_candidates(problem, facts), facts, {},
              [&](const KdaWalkTile& tile) { return kda_backward_scan_spec(problem, tile); });
}

// Adds what runs before the walks of a sequence in segments, or of a rank's part of it.
Status add_summaries(const KdaProblem& problem, const DeviceFacts& facts, KdaChunkedKernels* out) {
  const KdaSummaryParts parts = {problem.forward || problem.recomputes(), out->scan.has_value(),
                                 problem.initial_state, problem.dht};
  LATHE_ASSIGN(out->summary, kda_summary_of(*out, problem, parts, facts));
  if (problem.segmented) out->merge = kda_merge_spec(problem, parts);
  if (problem.ranks) out->compose = kda_compose_spec(problem);
  return {};
}

}  // namespace

Result<std::unique_ptr<KdaSummary>> kda_summary_of(const KdaChunkedKernels& kernels,
                                                   const KdaProblem& problem,
                                                   const KdaSummaryParts& parts,
                                                   const DeviceFacts& facts) {
  KdaSummaryProblem summary = {problem, parts, kernels.tile};
  const auto& first = *kda_forwards().front();
  summary.chosen_portable = kernels.forward &&
                            kernels.forward->kernel->family != std::string_view(first.family) &&
                            refusal_of(first, problem, facts).empty();
  // Tuning keys must not depend on the forward's answer, so nothing more is asked here.
  return make_step(kda_summaries(), summary, without_choices(facts));
}

Result<KdaChunkedKernels> kda_chunked_kernels(const KdaProblem& problem, const DeviceFacts& facts) {
  Result<KdaChunkedKernels> out(std::in_place);
  if (!problem.forward && !problem.backward && !problem.dinitial_state) return out;
  if (problem.forward) {
    LATHE_ASSIGN(out->forward, make_step(kda_forwards(), problem, facts));
  }
  LATHE_ASSIGN(out->tile, tile_of(problem, out->forward.get(), facts));
  if (problem.backward || problem.dinitial_state) {
    out->scan = kda_backward_scan_spec(problem, out->tile);
  }
  if (problem.segmented || problem.ranks) LATHE_TRY(add_summaries(problem, facts, &*out));
  if (!problem.backward) return out;
  if (kda_backward_smem(problem) > facts.shared_bytes_per_block) {
    return unsupported(text("kda: the gradients of K = ", problem.key_dim,
                            problem.grouped ? " with value heads that share keys" : "", " need ",
                            kda_backward_smem(problem), " bytes of shared memory, ", facts.arch,
                            " allows ", facts.shared_bytes_per_block));
  }
  out->backward = kda_backward_spec(problem);
  if ((problem.dA_log || problem.ddt_bias) && !problem.sums_outside) {
    out->finish = kda_backward_finish_spec();
  }
  return out;
}

std::vector<KernelSlot*> KdaChunkedKernels::slots() {
  std::vector<KernelSlot*> out;
  if (summary) out.push_back(&summary->kernel);
  out.insert(out.end(), {&compose, &merge});
  if (forward) out.push_back(&forward->kernel);
  out.insert(out.end(), {&scan, &backward, &finish});
  return out;
}

}  // namespace lathe
