// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How many ranks there may be, wherever a world is named: groups, launchers, shards, manifests.
#pragma once

namespace lathe {

// More than any machine has; what is kept for each rank of such a world still fits in memory.
inline constexpr int kMostWorld = 65536;

}  // namespace lathe
