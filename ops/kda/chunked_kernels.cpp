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

constexpr int kFinishThreads = 256;

}  // namespace

KernelSpec kda_backward_finish_spec() {
  return shared_spec(
      LATHE_TEMPLATE("kda", "kda_backward_finish", KdaBackwardFinishParams, reserved),
      "KdaBackwardFinishSmem", 4 * kFinishThreads, kFinishThreads);
}

namespace {

// Returns the walk forward that a backward repeats, for the values and states that it reads.
KdaProblem states_of(const KdaProblem& problem) {
  KdaProblem states = problem;
  states.forward = states.saves = states.no_output = true;
  states.final_state = states.chunk_states = false;
  return states;
}

// Returns the walk back. It also walks forward, unless an architecture has a kernel of its own for
// that.
KdaBackProblem back_of(const KdaProblem& problem, const DeviceFacts& facts) {
  const bool apart = refusal_of(*kda_forwards().front(), states_of(problem), facts).empty();
  return {problem, {}, problem.recomputes() && !apart};
}

// Returns the tile of the portable walks, which are one kernel in two directions: the forward's
// step has it, or the walk back chooses. Nobody chooses for a walk back that is not portable.
Result<KdaWalkTile> tile_of(const KdaProblem& problem, const KdaForward* forward,
                            const DeviceFacts& facts) {
  if (forward != nullptr) return forward->beside();
  if (std::string none = kda_walk_refusal(problem, facts); !none.empty()) return unsupported(none);
  const KdaBackProblem back = back_of(problem, facts);
  const auto tiles = kda_walk_candidates(problem, facts);
  if (refusal_of(*kda_backs().front(), back, facts).empty()) return tiles.front();
  return pick(tiles, facts, {}, [&](const KdaWalkTile& tile) {
    return kda_backward_scan_spec({problem, tile, back.both});
  });
}

// Adds the walk back, and the walk forward that a backward repeats.
Status add_scan(const KdaProblem& problem, const DeviceFacts& facts, KdaChunkedKernels* out) {
  KdaBackProblem back = back_of(problem, facts);
  back.tile = out->tile;
  back.by_beta = out->backward != nullptr && out->backward->by_beta();
  if (problem.recomputes() && !back.both) {
    LATHE_ASSIGN(out->states,
                 make_step(kda_forwards(), states_of(problem), without_choices(facts)));
  }
  LATHE_ASSIGN(out->scan, make_step(kda_backs(), back, without_choices(facts)));
  return {};
}

// Returns whether segments are walked in one launch, with what else runs before their walks. A
// measurement that has chosen the portable forward is about the segments too.
bool takes_cluster(const KdaProblem& problem, const DeviceFacts& facts,
                   const KdaChunkedKernels& kernels) {
  const KdaForwardStep& cluster = *kda_clusters().front();
  return problem.segmented && kernels.forward &&
         kernels.forward->kernel->family == std::string_view(cluster.family) &&
         refusal_of(cluster, problem, facts).empty();
}

// Adds what runs before the walks of a sequence in segments, or of a rank's part of it.
Status add_summaries(const KdaProblem& problem, const DeviceFacts& facts, KdaChunkedKernels* out) {
  const KdaSummaryParts parts = {problem.forward || problem.recomputes(), out->scan != nullptr,
                                 problem.initial_state, problem.dht};
  LATHE_ASSIGN(out->summary, kda_summary_of(*out, problem, parts, facts));
  // Portable summaries are as exact as float32, and so is their chain.
  const bool rounded = out->summary->kernel->family != std::string_view("portable");
  if (problem.segmented) out->merge = kda_merge_spec(problem, parts, rounded);
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
  if (problem.backward) {
    LATHE_ASSIGN(out->backward, make_step(kda_gradients(), problem, facts));
  }
  if (problem.backward || problem.dinitial_state) LATHE_TRY(add_scan(problem, facts, &*out));
  if (takes_cluster(problem, facts, *out)) {
    LATHE_ASSIGN(out->cluster, make_step(kda_clusters(), problem, without_choices(facts)));
  } else if (problem.segmented || problem.ranks) {
    LATHE_TRY(add_summaries(problem, facts, &*out));
  }
  if (!problem.backward) return out;
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
  if (cluster) out.push_back(&cluster->kernel);
  if (states) out.push_back(&states->kernel);
  if (scan) out.push_back(&scan->kernel);
  if (backward) out.push_back(&backward->kernel);
  out.push_back(&finish);
  return out;
}

}  // namespace lathe
