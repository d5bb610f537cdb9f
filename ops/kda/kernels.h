// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the KDA family on the host: which kernels a problem needs, with which tiles, how large
// their grids are and how many bytes they move. Pure functions of integers.
#pragma once

#include "codegen/device_facts.h"
#include "ops/kernel.h"
#include "ops/kernel_problems.h"

namespace lathe {

// Says how a block of kda_recurrent divides K and V. The tile is part of the spec. It depends on
// the widths, never on a length, a batch or a number of heads.
struct KdaRecurrentTile {
  int key_lanes = 16;  // lanes of a warp over K, 8 or 16; the others go over V
  int warps = 4;       // side by side along V

  int columns() const { return 4 * (32 / key_lanes) * warps; }
  bool operator==(const KdaRecurrentTile&) const = default;
};

// Returns all configurations worth trying, the default first. The tuner and choose() share this
// list.
std::vector<KdaRecurrentTile> kda_recurrent_candidates(const KdaProblem& problem,
                                                       const DeviceFacts& facts);
// Returns UNSUPPORTED if the device's shared memory is too small for any tile.
Result<KdaRecurrentTile> kda_recurrent_choose(const KdaProblem& problem, const DeviceFacts& facts);
// Returns the bytes of shared memory of a block: two buffers of one token per warp.
int kda_recurrent_smem(const KdaProblem& problem, const KdaRecurrentTile& tile);

Result<KernelSpec> kda_recurrent_kernel(const KdaProblem& problem, const DeviceFacts& facts);
// Returns the kernel with a tile that the caller picked from the candidates.
KernelSpec kda_recurrent_spec(const KdaProblem& problem, const KdaRecurrentTile& tile);

// Returns the kernel that writes records behind a kda_recurrent with rings.
KernelSpec kda_ring_append_spec(const KernelSpec& recurrent);

struct KdaRecurrentNumbers {
  KdaRecurrentNumbers() = default;
  KdaRecurrentNumbers(const KernelSpec& spec)
      : key_lanes(spec.constant("key_lanes")), v(spec.constant("v")), threads(spec.threads) {}
  int64_t key_lanes = 0, v = 0, threads = 0;
};

// Holds the geometry. `rows` counts the tokens of all sequences.
struct KdaShape {
  int64_t sequences = 0, heads = 0, value_heads = 0;
  int64_t rows = 0;
};
// Counts one block per tile of V, value head and sequence, all in x. A launch may have at most 2^31
// - 1 blocks: the caller compares this number, of one sequence, first.
int64_t kda_recurrent_blocks(const KdaRecurrentNumbers& kernel, const KdaShape& shape);

// Says which states a call of kda_recurrent reads and writes.
struct KdaStateTraffic {
  bool initial = false, final = false;  // without a pool; with one every state is
};
Cost kda_recurrent_cost(const KdaProblem& problem, const KernelSpec& spec, const KdaShape& shape,
                        const KdaStateTraffic& states);

}  // namespace lathe
