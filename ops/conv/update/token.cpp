// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements causal_conv1d_update over slots of a pool for one token of each sequence, at the speed
// of memory.
#include <algorithm>

#include "codegen/base/integers.h"
#include "ops/conv/update/step.h"

namespace lathe {
namespace {

// So many sequences of a warp are in flight; fewer suffice where a warp's channels of a state are
// many bytes.
constexpr int kWarps = 4, kMostRows = 4, kMostWideRows = 2;  // wide: of many taps
constexpr int kWarpBytesUnderWay = 2048;
constexpr int kBlocks = 4;  // of a multiprocessor, that registers are left for
constexpr int64_t kWarpsOfMultiprocessor = kBlocks * kWarps;

KernelSpec token_spec(const ConvProblem& problem) {
  const int vector = conv_update_vector(problem), state = 32 * vector * problem.columns;
  const int most = problem.width > 6 ? kMostWideRows : kMostRows;
  const int rows = std::clamp(kWarpBytesUnderWay / state, 1, most);
  KernelSpec spec = shared_spec(
      LATHE_TEMPLATE("conv", "causal_conv1d_update_token", ConvUpdatePoolParams, reserved),
      "ConvTokenSmem", kWarps * rows * state, 32 * kWarps, conv_update_slots_constants(problem));
  spec.add({Constant::integer("vector", "kVectorBytes", vector),
            Constant::integer("columns", "kColumns", problem.columns),
            Constant::integer("rows", "kRows", rows)});
  spec.min_blocks = kBlocks;
  return spec;
}

std::string refusal(const ConvProblem& problem, const DeviceFacts&) {
  if (!problem.slots) return "each row of the states has one token";
  if (problem.several || problem.ring || problem.drafts) return "a sequence may have other tokens";
  return problem.columns > problem.width ? "states have more columns than taps" : "";
}

std::vector<KernelSpec> candidates(const ConvProblem& problem, const DeviceFacts&) {
  return {token_spec(problem)};
}

class Token final : public ConvUpdate {
 public:
  Token(KernelSpec spec, const ConvProblem& problem, const DeviceFacts& facts)
      : ConvUpdate(std::move(spec), problem),
        wanted_(kWarpsOfMultiprocessor * std::max(facts.multiprocessors, 1)) {}

  int64_t blocks(const ConvShape& shape) const override {
    return ceil_div(tiles(shape) * ceil_div(shape.sequences, rows(shape)), kWarps);
  }
  Status launch(const Call& call, const ConvShape& shape) const override {
    ConvUpdatePoolParams p = conv_update_pool_params(problem(), call, shape);
    p.rows = static_cast<int>(rows(shape));
    return kernel.launch(blocks(shape), &p, call.stream);
  }

 private:
  int64_t tiles(const ConvShape& shape) const {
    return ceil_div(shape.channels, kernel.numbers().channels);
  }
  // Sequences of a warp: as many as leave each multiprocessor warps enough.
  int64_t rows(const ConvShape& shape) const {
    int64_t rows = kernel.numbers().rows;
    while (rows > 1 && tiles(shape) * ceil_div(shape.sequences, rows) < wanted_) rows /= 2;
    return rows;
  }

  int64_t wanted_;
};

std::unique_ptr<ConvUpdate> make(KernelSpec spec, const ConvProblem& problem,
                                 const DeviceFacts& facts) {
  return std::make_unique<Token>(std::move(spec), problem, facts);
}

}  // namespace

const ConvUpdateStep kConvUpdateToken = {"portable", refusal, candidates, {}, make};

}  // namespace lathe
