// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes layouts of a caller's options, and gives a shard another one.
#pragma once

#include "collective/agreement.h"
#include "ops/group.h"

struct lathe_shard_options;

namespace lathe {

Result<Layout> layout_of(const lathe_shard_options& options);
// Appends what must be equal of a layout on all ranks.
void add_digests(const Layout& layout, std::vector<NamedDigest>* out);
// Does what lathe_shard_update does.
Status update_layout(lathe_shard* shard, const lathe_shard_options& options, CUstream stream);

}  // namespace lathe
