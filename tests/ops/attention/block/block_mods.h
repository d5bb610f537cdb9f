// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file gives steps of ring attention a score_mod and a mask_mod: device text of a caller, and
// the same in the reference.
#pragma once

#include "tests/ops/attention/block/block_case.h"

namespace apitest {

// Puts the mods that a row's flags name into a call, with what they read.
void put_mod_texts(const TileRow& row, Call* call);
// Puts them into the reference, for row b of the batch, and which keys a row of it sees.
void put_mods(const TileRow& row, const std::shared_ptr<BlockStep>& step, int64_t b,
              ref::AttentionBlock* a);

}  // namespace apitest
