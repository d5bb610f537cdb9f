// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/cache_peers.h"

namespace bench {
void add_triton_hits(Table*, const Settings&) {}
void add_triton_compiles(Table*, const Settings&) {}
}  // namespace bench
