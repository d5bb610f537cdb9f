// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Shapes of kda that figures are published for (bench/results/published.csv), and what a call of
// each must move and multiply.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/lathe.h"

namespace bench {

struct KdaSize {
  lathe_dtype dtype = LATHE_BF16, gate = LATHE_BF16;  // q, k, v, o and beta; g
  int64_t batch = 1, tokens = 1;
  int64_t heads = 1, group = 1;  // of q and k; value heads of each
  int64_t key_dim = 128, value_dim = 128;
  int64_t sequences = 0;  // packed into that many; 0: not packed
  bool backward = false;
  bool fused = false;        // L2 norm, gate with A_log and dt_bias, and sigmoid in the kernels
  bool final_state = false;  // and an initial one; in a backward their gradients
  int64_t segments = 0;      // 0: chosen

  std::string text() const;
  std::string op() const { return backward ? "backward" : "forward"; }
  const char* dtype_word() const;
  int64_t value_heads() const { return heads * group; }
  int64_t parts() const { return sequences > 0 ? sequences : batch; }
  // Returns where sequence `part` begins on the flat axis of batch * tokens.
  int64_t begin(int64_t part) const { return part * batch * tokens / parts(); }
  // Returns the bytes if every input is read once and every output written once.
  double minimum_bytes() const;
  // Operations of matrix products: those of the state, which every form of chunks has (two reads
  // and an update in the forward; 8 more of them in the gradients), and those inside blocks of 16
  // tokens, the shortest that a product of 16-bit matrices has rows for.
  double state_ops() const;
  double block_ops() const;
};

// Returns the sizes of published.csv that the visit to a GPU times, forward.
std::vector<KdaSize> published_sizes();

}  // namespace bench
