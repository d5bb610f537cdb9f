// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes what a problem of flash attention asks for, and the operator's own checks.
#pragma once

#include <array>

#include "ops/attention/kernels.h"
#include "ops/attention/schema.h"
#include "ops/infer.h"
#include "ops/resolve.h"

namespace lathe {

// Says which gradients are wanted; they may be fewer than the kernels can compute.
struct AttentionGradients {
  bool dq = false, dk = false, dv = false, dsinks = false;
};

// Holds the properties that select the code, and the numbers that are only passed to the kernels.
struct AttentionRequest {
  AttentionProblem problem;
  float softmax_scale = 0, softcap = 0;            // softcap 0: none
  int64_t window_left = -1, window_right = -1;     // -1: unlimited; causal is window_right 0
  bool alibi_rows = false;                         // slopes are [B,H]
  std::array<float, 4> scalars{};                  // of mods
  int64_t first_head = 0;                          // of all heads: what mods are told
  std::array<int, 4> captured = {-1, -1, -1, -1};  // tensors that they read, as in the table
  AttentionGradients gradients;                    // those that are asked for
  AttentionOptions options;                        // of flash_attention
  // `declared` and `ratio` are the problem's extents, for choices that fit them; kUnknown if an
  // extent varies.
  AttentionShape declared;
  int64_t ratio = kUnknown;  // query heads of a key head
  int64_t sm_margin = 0;     // multiprocessors that steps leave to an exchange
};

// Refuses problems that the tables cannot exclude: wrong widths, groups of heads that are not
// whole, and tensors of which some are packed and some are not.
Status check_attention(const Resolved& resolved);

// Checks that a width of queries and keys, or of values, is known and one that kernels are made
// for.
Status check_head_width(const char* tensor, const char* dim, int64_t width);

// Returns the part of a request that all operators of the family have: types, widths, windows,
// softcap, ALiBi and mods. The arguments are tensors of the operator. Returns UNSUPPORTED, by name,
// for features that no template covers.
Result<AttentionRequest> score_request(const Resolved& resolved, int element, int capture_0,
                                       int alibi_slopes);

// Returns the shape that the kernels' geometry depends on; kUnknown where an extent is kUnknown.
AttentionShape attention_shape(const Extents& extents, bool packed);

// Returns the request of flash_attention.
Result<AttentionRequest> attention_request(const Resolved& resolved);

// Checks that there is one scale, or one for each of `heads` heads. kUnknown passes.
Status check_scale(const char* tensor, int64_t found, const char* dim, int64_t heads);

// Returns INVALID_ARGUMENT for options that have no meaning without ranks that exchange keys.
Status check_without_ranks(const AttentionRequest& request);

}  // namespace lathe
