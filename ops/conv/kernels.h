// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The causal_conv1d family on the host: which kernels a problem needs, with which tiles, how large
// their grids are and what they move. Pure functions of integers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codegen/base/status.h"
#include "codegen/device_facts.h"
#include "codegen/launch_shape.h"
#include "codegen/spec.h"
#include "ops/kernel_problems.h"

namespace lathe {

// Tile constants: part of the spec, never functions of T, B or N.
struct ConvTile {
  int tokens = 64;  // tokens one thread walks
  int warps = 4;    // threads = 32 * warps
  // How the threads of a block are laid over (channels, tokens) is the template's affair.
};

// All configurations worth trying, the default first. The tuner and choose() share this list.
std::vector<ConvTile> conv_candidates(const ConvProblem& problem, const DeviceFacts& facts);
// UNSUPPORTED if the device's shared memory is too small for any of them.
Result<ConvTile> conv_choose(const ConvProblem& problem, const DeviceFacts& facts);

struct ConvKernels {
  std::optional<KernelSpec> forward, backward, update;
  std::optional<KernelSpec> weight_grad;  // partials -> weight's dtype, or float32 when ranks add
  std::optional<KernelSpec>
      weight_grad_cast;  // after the all-reduce: one partial -> weight's dtype
  std::optional<KernelSpec> halo_pack, halo_join, halo_add;
};
// `reduce_over_ranks`: dweight and dbias are all-reduced in float32 between the two passes.
Result<ConvKernels> conv_kernels(const ConvProblem& problem, const DeviceFacts& facts,
                                 bool reduce_over_ranks);

// Geometry. `tokens` = end - begin of this rank.
struct ConvShape {
  int64_t batch = 0, tokens = 0, channels = 0, sequences = 0;
};
int64_t conv_tiles(const KernelSpec& spec, int64_t tokens);  // token tiles of one batch row
int64_t conv_state_tiles(const KernelSpec& spec, const ConvShape& shape);
// A launch over `tiles` token tiles and `state_tiles` state tiles (either may be 0, not both).
Grid conv_grid(const KernelSpec& spec, const ConvShape& shape, int64_t tiles, int64_t state_tiles);
Grid conv_weight_grad_grid(const KernelSpec& spec, const ConvShape& shape);
Grid conv_update_grid(const KernelSpec& spec, const ConvShape& shape);
Grid conv_halo_grid(const KernelSpec& spec, const ConvShape& shape);
uint64_t conv_partials_bytes(const KernelSpec& backward, const ConvShape& shape);

// Reference: causal_conv1d.md, section 9.
Cost conv_cost(const ConvProblem& problem, const ConvKernels& kernels, const ConvShape& shape);

}  // namespace lathe
