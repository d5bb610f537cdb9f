// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the plan of flash_attention_decode.
#pragma once

#include "ops/attention/decode/step.h"
#include "ops/executor.h"

namespace lathe {

// Refuses what the tables cannot say.
Status check_attention_decode(const Resolved& resolved);
// UNSUPPORTED, by name, for what no template covers.
Result<DecodeRequest> decode_request(const Resolved& resolved);

// Checks pages: used entries of block_table lie within the cache, cache_seqlens fits block_table,
// and no page that one sequence appends to is used by another.
Status check_decode_values(const Values& values);
// Checks the pages' size, and how many keys a sequence may have. kUnknown passes.
Status check_pages(int64_t page, int64_t table_width);
// Checks the bytes of a row. kUnknown passes.
Status check_cache_rows(int64_t bytes);

// Chooses kernels; compiles nothing.
MadeExecutor make_attention_decode(const Resolved& resolved, const DeviceFacts& facts);

}  // namespace lathe
