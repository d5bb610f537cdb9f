// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes what a flash_attention call has to multiply, and reads what the simulator counted of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/ops/attention/large.h"

namespace bench {

// Returns the constant `name` of a kernel's spec text.
std::optional<int64_t> spec_constant(const std::string& spec, const std::string& name);

// Operations of matrix products: of all pairs of the tiles that hold one which counts, and of the
// pairs that count alone. A backward has five products where a forward has two.
struct AttnWork {
  int64_t tiles = 0;
  double tile_ops = 0, pair_ops = 0;
};
// `group`: heads that are rows of one tile.
AttnWork attn_work(const apitest::AttentionSize& size, int64_t rows, int64_t keys, int64_t group);

// The launches of one call added up, from the simulator's lines about them.
struct AttnCounts {
  size_t launches = 0;
  double tensor_ops = 0, conflicts = 0, warp_instructions = 0, local_requests = 0;
  double memory_bytes = 0;  // each sector once per launch: a second cache that holds all of it
  double asked_bytes = 0;   // of the second cache
};
AttnCounts attn_counts(const std::vector<std::string>& launches);

}  // namespace bench
