// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Values that the kernels of flash attention trust.
#pragma once

#include "ops/values.h"

namespace lathe {

Status check_attention_values(const Values& values);
// Pages: block_table within the cache as far as it is in use, cache_seqlens within block_table, and
// no page that one sequence appends to in use by another.
Status check_decode_values(const Values& values);
// Attention ranges: intervals within rows and keys, ascending, and no row sees a key in two of
// them. Positions are small enough to add.
Status check_block_values(const Values& values);
Status check_delta_values(const Values& values);
Status check_merge_values(const Values& values);

}  // namespace lathe
