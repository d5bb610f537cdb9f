// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention behind the plan: what a problem asks for, and the checks of its own.
#pragma once

#include "ops/attention/backward_kernels.h"
#include "ops/executor.h"
#include "ops/heads.h"

namespace lathe {

// What makes the code, and the numbers that are only handed to it.
struct AttentionRequest {
  AttentionProblem problem;
  float softmax_scale = 0, softcap = 0;            // softcap 0: none
  int64_t window_left = -1, window_right = -1;     // -1: unlimited; causal is window_right 0
  bool alibi_rows = false;                         // slopes are [B,H]
  std::array<float, 4> scalars{};                  // of snippets
  int64_t first_head = 0;                          // of all heads: what snippets are told
  std::array<int, 4> captured = {-1, -1, -1, -1};  // tensors that they read, as in the table
  AttentionGradients gradients;                    // those that are asked for
  // What the problem promises, for choices that fit it: kUnknown where it varies.
  AttentionShape promised;
  int64_t ratio = kUnknown;  // query heads of a key head
  // Over ranks: multiprocessors that steps leave to the exchange, and key heads that are gathered
  // at a time; 0: all of either.
  int64_t sm_margin = 0, gather_heads = 0;
};

// What letters alone cannot say: widths, whole groups of heads, and that either everything is
// packed or nothing. After the checks by letter.
Status check_attention(const lathe_problem& problem, const Extents& promised);

// A width of queries and keys, or of values: known, and one that kernels are made for.
Status check_head_width(const char* tensor, const char* letter, int64_t width);

// The value of an option that is a number, as text.
int64_t integer_option(const lathe_problem& problem, const char* name);

// What options say about scores: scale, softcap and windows.
Status read_score_options(const lathe_problem& problem, int64_t head_dim, AttentionRequest* out);

// kUnknown where an extent is.
AttentionShape attention_shape(const Extents& extents, bool packed);

// UNSUPPORTED, by name, for what no template covers. After check_problem.
Result<AttentionRequest> attention_request(const lathe_problem& problem, const Extents& promised);

// INVALID_ARGUMENT for options that mean nothing without ranks that exchange keys.
Status check_without_ranks(const AttentionRequest& request);

// Chooses kernels; compiles nothing.
Result<std::unique_ptr<Executor>> make_attention(const AttentionRequest& request,
                                                 const DeviceFacts& facts);

}  // namespace lathe
