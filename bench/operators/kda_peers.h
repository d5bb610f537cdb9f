// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compares bytes of kda with those of flash-linear-attention's chunk_kda, both counted on the
// simulator.
#pragma once

#include <string>

#include "bench/table.h"

struct lathe_context;

namespace bench {

// T 2048, H 4, K = V = 128, bf16: every byte counted, none scaled. `folder`: of this program, where
// the peers are found beside; without them the table has ours alone.
Table kda_beside_peers(lathe_context* context, const std::string& folder);

}  // namespace bench
