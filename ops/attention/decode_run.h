// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_decode behind the plan: what a problem asks for, and the checks of its own.
#pragma once

#include "ops/attention/decode_kernels.h"
#include "ops/attention/run.h"

namespace lathe {

struct DecodeRequest {
  AttentionRequest attention;
  int64_t splits = 0;          // 0: chosen
  int64_t queries = kUnknown;  // as promised
};

// What letters alone cannot say. After the checks by letter.
Status check_attention_decode(const lathe_problem& problem, const Extents& promised);
// Of pages: their size, and how many keys a sequence may have. kUnknown passes.
Status check_pages(int64_t page, int64_t table_width);

// UNSUPPORTED, by name, for what no template covers. After check_problem.
Result<DecodeRequest> decode_request(const lathe_problem& problem, const Extents& promised);

// Chooses kernels; compiles nothing.
Result<std::unique_ptr<Executor>> make_attention_decode(const DecodeRequest& request,
                                                        const DeviceFacts& facts);

}  // namespace lathe
