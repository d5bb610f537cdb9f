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
  int64_t queries = kUnknown;  // as declared
};

// Refuses what the tables cannot say.
Status check_attention_decode(const Resolved& resolved);
// Checks the pages' size, and how many keys a sequence may have. kUnknown passes.
Status check_pages(int64_t page, int64_t table_width);

// UNSUPPORTED, by name, for what no template covers.
Result<DecodeRequest> decode_request(const Resolved& resolved);

// Chooses kernels; compiles nothing.
Result<std::unique_ptr<Executor>> make_attention_decode(const DecodeRequest& request,
                                                        const DeviceFacts& facts);

}  // namespace lathe
