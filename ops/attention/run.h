// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Implements flash_attention behind the plan: the request of a problem, and the operator's own
// checks.
#pragma once

#include "ops/attention/backward/kernels.h"
#include "ops/attention/decode/kernels.h"
#include "ops/attention/schema.h"
#include "ops/executor.h"
#include "ops/infer.h"
#include "ops/resolve.h"

namespace lathe {

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

// Returns INVALID_ARGUMENT for options that have no meaning without ranks that exchange keys.
Status check_without_ranks(const AttentionRequest& request);

// These functions choose kernels and compile nothing. Over the ranks of a group, the group's flags
// name the method; the default is a ring.
MadeExecutor make_attention(const AttentionRequest& request, const DeviceFacts& facts);
MadeExecutor make_attention_over_ranks(const lathe_problem& problem,
                                       const AttentionRequest& request, const DeviceFacts& facts,
                                       Group* group);

// Checks pages: used entries of block_table lie within the cache, cache_seqlens fits block_table,
// and no page that one sequence appends to is used by another.
Status check_decode_values(const Values& values);
// Checks attention ranges: intervals lie within rows and keys and ascend, no row sees a key in two
// of them, and positions are small enough to add.
Status check_block_values(const Values& values);

// The rest of this header is about flash_attention_decode.

// The widths of latent attention: without a cache of values, these are columns of the keys.
inline constexpr int64_t kLatentWidth = 576, kLatentValueWidth = 512;

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
