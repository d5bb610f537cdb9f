// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/kda/walk.h"

#include "codegen/base/integers.h"
#include "ops/kernel.h"
#include "ops/tiles.h"
#include "templates/params/kda.h"
#include "templates/params/kda_chunked.h"

namespace lathe {
namespace {

constexpr int kPanel = 64;  // columns that rows in shared memory come in

// Returns the bytes of a block of 16 tokens: three tiles of 16-bit rows and two of pairs (three
// planes of each for float32), the decay, three numbers a token, and float32 pairs.
int block_bytes(const KdaProblem& problem) {
  const int width = kda_padded_keys(problem), planes = problem.element == Dtype::f32 ? 3 : 1;
  return round_up(planes * (3 * 16 * 2 * width + 2 * 512) + 4 * width + 3 * 64 + 16 * 4 * 24, 1024);
}

}  // namespace

int kda_padded_keys(const KdaProblem& problem) { return round_up(problem.key_dim, kPanel); }

int kda_walk_smem(const KdaProblem& problem, const KdaWalkTile& tile) {
  const int rows =
      problem.element == Dtype::f32 ? 4 * (tile.values() + 4) : 2 * round_up(tile.values(), kPanel);
  return tile.warps * block_bytes(problem) + tile.values() * rows;
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

std::string kda_walk_refusal(const KdaProblem& problem, const DeviceFacts& facts) {
  if (!kda_walk_candidates(problem, facts).empty()) return {};
  return shared_memory_refusal("kda: a block", kda_walk_smem(problem, {1}), facts);
}

Constant kda_offsets(const KdaProblem& problem) {
  return Constant::type("cu", "Offset", problem.packed ? problem.cu_seqlens : Dtype::i32);
}

std::vector<Constant> kda_constants(const KdaProblem& problem) {
  return {
      Constant::type("element", "Element", problem.element),
      Constant::type("g", "GateElement", problem.gate),
      Constant::type("beta", "BetaElement", problem.beta),
      kda_offsets(problem),
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

void add_kda_pool(const KdaProblem& problem, bool checkpoints, KernelSpec* spec) {
  if (!problem.pool) return;
  spec->add({Constant::type("pool", "PoolElement", problem.pooled),
             Constant::type("index", "Index", problem.index)});
  if (checkpoints) spec->add({Constant::flag("checkpoints", "kCheckpoints", true)});
}

KernelSpec kda_walk_spec(const Template& from, const KdaProblem& problem, const KdaWalkTile& tile) {
  KernelSpec spec = shared_spec(from, "KdaScanSmem", kda_walk_smem(problem, tile), 32 * tile.warps,
                                kda_constants(problem));
  spec.add({Constant::flag("v_first", "kStateVFirst", problem.state_v_first)});
  return spec;
}

int64_t kda_sum_parts(const KdaProblem& problem) { return problem.element == Dtype::f32 ? 1 : 2; }

// Blocks of 16 tokens are made ready by every block of threads that has values of the head: pairs
// of their rows at four levels of the columns, 7 products 16 x 8 x 16 for 16 columns, or 3 where a
// gate's bound lets them do. Then come the products with the state and with squares.
int64_t kda_walk_ops(const KdaProblem& problem, const KdaWalkWork& work) {
  const int64_t terms = problem.element == Dtype::f32 ? 6 : 1, width = kda_padded_keys(problem);
  const bool bounded = problem.gate_kind == kKdaGateBounded && problem.element != Dtype::f16;
  const int64_t pairs = width * (bounded ? 3 : 7) * 2 * 8 * 16;
  const int64_t sums = (work.states + kda_sum_parts(problem)) * width + work.squares * kKdaBlock;
  return terms * (pairs + work.columns * 2 * kKdaBlock * sums);
}

}  // namespace lathe
