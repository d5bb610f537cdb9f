// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements the gradients of chunks with mma.sync and cp.async, for every architecture and
// element.
#include <memory>
#include <utility>

#include "codegen/base/integers.h"
#include "codegen/base/invalid.h"
#include "ops/kda/gradients/step.h"
#include "ops/kda/walk.h"

namespace lathe {
namespace {

constexpr int kThreads = 256;
constexpr int kPassKeys = 32;  // columns of K that the gradients are worked on at a time

class Portable final : public KdaGradients {
 public:
  using KdaGradients::KdaGradients;

  // do h, y h and vn dh; the pairs of do and y with vn; and along K what those give q and k: ten
  // squares of 16 tokens in each of four sums; and of the four squares on the diagonal, whose pairs
  // go by four levels, three products of each level.
  int64_t tensor_ops(const KdaProblem& problem) const override {
    const int64_t width = kda_padded_keys(problem), values = round_up(problem.value_dim, 64);
    return 3 * 2 * 64 * width * values + 2 * 10 * 2 * 16 * 16 * values +
           (4 * 10 + 4 * 4 * 3) * 2 * 16 * 16 * width;
  }
  Status launch(const KdaBackwardParams& p, int64_t blocks, CUstream_st* stream) const override {
    return kernel.launch(blocks, &p, stream);
  }
};

std::string refusal(const KdaProblem& problem, const DeviceFacts& facts) {
  if (kda_backward_smem(problem) <= facts.shared_bytes_per_block) return {};
  return text("kda: the gradients of K = ", problem.key_dim,
              problem.grouped ? " with value heads that share keys" : "", " need ",
              kda_backward_smem(problem), " bytes of shared memory, ", facts.arch, " allows ",
              facts.shared_bytes_per_block);
}

std::vector<KernelSpec> candidates(const KdaProblem& problem, const DeviceFacts&) {
  return {kda_backward_spec(problem)};
}

std::unique_ptr<KdaGradients> make(KernelSpec spec, const KdaProblem&, const DeviceFacts&) {
  return std::make_unique<Portable>(std::move(spec));
}

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
  const int waiting = waits ? (width / kPassKeys - 1) * 16 * 4 * kThreads : 0;
  return round_up(tiles + pairs + columns + rows + waiting, 128);
}

KernelSpec kda_backward_spec(const KdaProblem& problem) {
  KernelSpec spec =
      shared_spec(LATHE_TEMPLATE("kda", "kda_backward", KdaBackwardParams, run), "KdaBackwardSmem",
                  kda_backward_smem(problem), kThreads, kda_constants(problem));
  spec.add({Constant::flag("grouped", "kGrouped", problem.grouped)});
  return spec;
}

const KdaGradientsStep kKdaGradientsPortable = {"portable", refusal, candidates, {}, make};

}  // namespace lathe
