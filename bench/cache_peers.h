// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Triton's cache and compiler on the conv1d kernels of flash-linear-attention, for `lathe_bench
// cache --peers`.
#pragma once

#include "bench/verbs.h"

namespace bench {

void add_triton_hits(Table* table, const Settings& settings);
void add_triton_compiles(Table* table, const Settings& settings);

}  // namespace bench
