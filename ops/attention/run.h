// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention behind the plan: what a problem asks for, and the checks of its own.
#pragma once

#include "ops/attention/backward_kernels.h"
#include "ops/attention/decode_kernels.h"
#include "ops/attention/schema.h"
#include "ops/executor.h"
#include "ops/resolve.h"
#include "ops/values.h"

namespace lathe {

// What makes the code, and the numbers that are only handed to it.
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
  // What the problem declares, for choices that fit it: kUnknown where it varies.
  AttentionShape declared;
  int64_t ratio = kUnknown;  // query heads of a key head
  int64_t sm_margin = 0;     // multiprocessors that steps leave to an exchange
};

// Refuses what the tables cannot say: widths, groups of heads that are not whole, and tensors of
// which some are packed and some are not.
Status check_attention(const Resolved& resolved);

// A width of queries and keys, or of values: known, and one that kernels are made for.
Status check_head_width(const char* tensor, const char* dim, int64_t width);

// Returns the part of a request that all operators of the family have: types, widths, windows,
// softcap, ALiBi and mods. The arguments are tensors of the operator. UNSUPPORTED, by name, for
// what no template covers.
Result<AttentionRequest> score_request(const Resolved& resolved, int element, int capture_0,
                                       int alibi_slopes);

// The shape that kernels' geometry depends on; kUnknown where an extent is.
AttentionShape attention_shape(const Extents& extents, bool packed);

// The request of flash_attention.
Result<AttentionRequest> attention_request(const Resolved& resolved);

// INVALID_ARGUMENT for options that mean nothing without ranks that exchange keys.
Status check_without_ranks(const AttentionRequest& request);

// Chooses kernels; compiles nothing.
MadeExecutor make_attention(const AttentionRequest& request, const DeviceFacts& facts);

Status check_attention_values(const Values& values);
// Pages: block_table within the cache as far as it is in use, cache_seqlens within block_table, and
// no page that one sequence appends to in use by another.
Status check_decode_values(const Values& values);
// Attention ranges: intervals within rows and keys, ascending, and no row sees a key in two of
// them. Positions are small enough to add.
Status check_block_values(const Values& values);
Status check_delta_values(const Values& values);
Status check_merge_values(const Values& values);

// The rest of this header is about flash_attention_decode.

struct DecodeRequest {
  AttentionRequest attention;
  int64_t splits = 0;          // 0: chosen
  int64_t queries = kUnknown;  // as declared
};

// Refuses what the tables cannot say.
Status check_attention_decode(const Resolved& resolved);
// Checks the pages' size, and how many keys a sequence may have. kUnknown passes.
Status check_pages(int64_t page, int64_t table_width);

// UNSUPPORTED, by name, for what no template covers.
Result<DecodeRequest> decode_request(const Resolved& resolved);

// Chooses kernels; compiles nothing.
MadeExecutor make_attention_decode(const Resolved& resolved, const DeviceFacts& facts);

}  // namespace lathe
