// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Limits how many ranks there may be in groups, launchers, shards and manifests.
#pragma once

namespace lathe {

// The limit is more than any machine has; per-rank data of such a world still fits in memory.
inline constexpr int kMostWorld = 65536;

}  // namespace lathe
