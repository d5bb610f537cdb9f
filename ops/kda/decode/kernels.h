// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes kda_decode on the host: its tiles, its spec and its cost. Pure functions of integers.
#pragma once

#include "ops/kda/kernels.h"

namespace lathe {

// Holds what selects the code of a decode layer: the recurrence, and what is around it.
struct KdaDecodeProblem {
  KdaProblem kda;
  Dtype conv_weight = Dtype::bf16;
  int conv_width = 4;    // W
  int conv_columns = 3;  // LS
  bool conv_bias = false, conv_silu = true;
  int tokens = 1;  // that a block has room for
  bool norm = false, output_gate = false;
  Dtype norm_weight = Dtype::f32;        // meaningful with norm
  Dtype output_gate_type = Dtype::bf16;  // meaningful with output_gate
  bool output_gate_silu = false;         // else a sigmoid
};

// Tokens of a call whose tensors have a dim for them. A call of one token has a kernel of its own.
constexpr int kKdaDecodeMostTokens = 16;

int kda_decode_smem(const KdaDecodeProblem& problem, const KdaRecurrentTile& tile);
// Returns all tiles worth trying, the default first.
std::vector<KdaRecurrentTile> kda_decode_candidates(const KdaDecodeProblem& problem,
                                                    const DeviceFacts& facts);
KernelSpec kda_decode_spec(const KdaDecodeProblem& problem, const KdaRecurrentTile& tile);
// Returns UNSUPPORTED if the device's shared memory is too small for any tile.
Result<KernelSpec> kda_decode_kernel(const KdaDecodeProblem& problem, const DeviceFacts& facts);

// Counts a block for each query head and sequence. `updates`: states and inputs are written.
Cost kda_decode_cost(const KdaDecodeProblem& problem, const KdaShape& shape, bool updates);

}  // namespace lathe
