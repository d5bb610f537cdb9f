// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the spec of kda_decode, and counts what it moves.
#include "ops/kda/decode/kernels.h"

#include "codegen/base/integers.h"
#include "ops/tiles.h"
#include "templates/params/kda.h"
#include "templates/params/kda_decode.h"

namespace lathe {
namespace {

constexpr int kNarrowKeys = 32;     // as kda_recurrent has it
constexpr int kMostThreads = 1024;  // of a multiprocessor: each then has up to 64 registers
constexpr int kMostStateRegisters = 32;

int key_lanes_of(const KdaDecodeProblem& problem) {
  return problem.kda.key_dim <= kNarrowKeys ? 8 : 16;
}

int state_registers(const KdaDecodeProblem& problem, const KdaRecurrentTile& tile) {
  return 16 * ceil_div(problem.kda.key_dim, 4 * tile.key_lanes);
}

}  // namespace

int kda_decode_smem(const KdaDecodeProblem& problem, const KdaRecurrentTile& tile) {
  const int width = round_up(problem.kda.key_dim, 4 * tile.key_lanes);
  const int values = round_up(problem.kda.value_dim, tile.columns());
  const int staged = width <= 128 ? 16 : 4;  // records at once
  const int records = problem.kda.states == kKdaStatesRings ? staged * (2 * width + values) : 0;
  return 4 * (problem.tokens * (3 * width + 2 * values + 4) + 4 + records);
}

// A head is one block's, so it has as many warps as the head has columns for, unless their threads
// have too few registers for their share of the state.
std::vector<KdaRecurrentTile> kda_decode_candidates(const KdaDecodeProblem& problem,
                                                    const DeviceFacts& facts) {
  std::vector<KdaRecurrentTile> candidates;
  for (const int warps : {16, 8, 4, 2, 1}) {
    const KdaRecurrentTile tile = {key_lanes_of(problem), warps};
    if (warps > 8 && state_registers(problem, tile) > kMostStateRegisters) continue;
    if (warps > 1 && tile.columns() >= 2 * problem.kda.value_dim) continue;
    if (kda_decode_smem(problem, tile) > facts.shared_bytes_per_block) continue;
    candidates.push_back(tile);
  }
  return candidates;
}

KernelSpec kda_decode_spec(const KdaDecodeProblem& problem, const KdaRecurrentTile& tile) {
  const KdaProblem& kda = problem.kda;
  KernelSpec spec =
      shared_spec(LATHE_TEMPLATE("kda", "kda_decode", KdaDecodeParams, reserved), "KdaDecodeSmem",
                  kda_decode_smem(problem, tile), 32 * tile.warps,
                  {
                      Constant::type("element", "Element", kda.element),
                      Constant::type("g", "GateElement", kda.gate),
                      Constant::type("beta", "BetaElement", kda.beta),
                      Constant::type("weight", "WeightElement", problem.conv_weight),
                      Constant::type("index", "Index", kda.index),
                      Constant::integer("k", "kKeyDim", kda.key_dim),
                      Constant::integer("v", "kValueDim", kda.value_dim),
                      Constant::integer("key_lanes", "kKeyLanes", tile.key_lanes),
                      Constant::integer("step_tokens", "kTokens", problem.tokens),
                      Constant::integer("states", "kStates", kda.states),
                      Constant::integer("w", "kConvWidth", problem.conv_width),
                      Constant::integer("columns", "kConvColumns", problem.conv_columns),
                      Constant::flag("bias", "kConvBias", problem.conv_bias),
                      Constant::flag("silu", "kConvSilu", problem.conv_silu),
                      Constant::integer("gate", "kGate", kda.gate_kind),
                      Constant::flag("A_log", "kAlog", kda.A_log),
                      Constant::flag("dt_bias", "kDtBias", kda.dt_bias),
                      Constant::flag("sigmoid", "kSigmoid", kda.sigmoid),
                      Constant::flag("l2norm", "kL2Norm", kda.l2norm),
                      Constant::flag("v_first", "kStateVFirst", kda.state_v_first),
                      Constant::flag("norm", "kNorm", problem.norm),
                      Constant::flag("output_gate", "kOutputGate", problem.output_gate),
                  });
  // One block loads its state while another one walks, where a thread's share of it is small.
  const int blocks = kMostThreads / (32 * tile.warps);
  if (state_registers(problem, tile) <= kMostStateRegisters) spec.min_blocks = blocks;
  if (problem.norm) spec.add({Constant::type("norm_type", "NormElement", problem.norm_weight)});
  if (problem.output_gate) {
    spec.add({Constant::type("gate_type", "OutputGateElement", problem.output_gate_type),
              Constant::flag("gate_silu", "kOutputGateSilu", problem.output_gate_silu)});
  }
  if (kda.states == kKdaStatesRings) spec.add({Constant::type("ring", "RingElement", kda.ring)});
  if (kda.pooled != Dtype::f32) spec.add({Constant::type("pool", "PoolElement", kda.pooled)});
  add_alignment(kda.alignment, &spec);
  return spec;
}

Result<KernelSpec> kda_decode_kernel(const KdaDecodeProblem& problem, const DeviceFacts& facts) {
  LATHE_ASSIGN(const KdaRecurrentTile tile,
               choose_tile(
                   kda_decode_candidates(problem, facts), facts, {},
                   [&](const KdaRecurrentTile& each) { return kda_decode_spec(problem, each); },
                   "kda_decode: a block",
                   [&] {
                     return kda_decode_smem(problem, {key_lanes_of(problem), 1});
                   }));
  return kda_decode_spec(problem, tile);
}

Cost kda_decode_cost(const KdaDecodeProblem& problem, const KdaShape& shape, bool updates) {
  const KdaProblem& kda = problem.kda;
  const auto of = [](int64_t number) { return static_cast<uint64_t>(number); };
  const uint64_t rows = of(shape.rows), sequences = of(shape.sequences);
  const uint64_t heads = of(shape.heads), value_heads = of(shape.value_heads);
  const uint64_t k = of(kda.key_dim), v = of(kda.value_dim), element = of(bytes_of(kda.element));
  const uint64_t channels = 2 * heads * k + value_heads * v;
  uint64_t row = channels * element + value_heads * (k * bytes_of(kda.gate) + bytes_of(kda.beta));
  row += value_heads * v * element;
  if (problem.output_gate) row += value_heads * v * bytes_of(problem.output_gate_type);
  const bool rings = kda.states == kKdaStatesRings;
  // With records a state is read alone; how many of them there are is on the device.
  const uint64_t state = value_heads * k * v * bytes_of(kda.pooled);
  const uint64_t inputs = channels * of(problem.conv_columns) * element;
  if (rings) {
    row += heads * k * element + value_heads * (4 * k + v * bytes_of(kda.ring));
  }
  Cost cost;
  cost.minimum_bytes = rows * row + sequences * (updates && !rings ? 2 : 1) * state +
                       sequences * (updates ? 2 : 1) * inputs +
                       channels * of(problem.conv_width) * bytes_of(problem.conv_weight);
  cost.bytes = cost.minimum_bytes;  // L2 has the taps for all sequences
  // Taps; then decay, two sums over K, and the update.
  cost.flops = rows * (2 * channels * of(problem.conv_width) + 7 * value_heads * k * v);
  return cost;
}

}  // namespace lathe
