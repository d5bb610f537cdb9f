// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The C objects for ranks: a group and the cut of a sequence axis.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/context.h"
#include "collective/group.h"
#include "collective/shard.h"

struct lathe_group {
  lathe_context* context = nullptr;
  std::shared_ptr<lathe::Group> group;
};

struct lathe_shard {
  lathe::Partition partition;
  int rank = 0;
  lathe::PartContext view;  // of the last lathe_shard_view_of
};
