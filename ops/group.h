// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Defines the C objects for ranks: a group and the cut of a sequence axis.
#pragma once

#include <memory>
#include <vector>

#include "codegen/choice.h"
#include "collective/group.h"
#include "collective/plans/layout.h"
#include "ops/device_table.h"

struct lathe_context;

namespace lathe {

// These flags of a problem's group equal those of lathe.h.
enum GroupFlags : unsigned {
  kReduceParameterGrads = 1,  // gradients of weights, biases and sinks are summed over the ranks
  // These flags say how queries and keys of attention meet. Without one of them keys travel a ring.
  kAllgather = 2,         // keys are gathered on every rank
  kDispatch = 4,          // both move to where the planner balances the work
  kExchangeHeads = 8,     // whole sequences, a share of the heads
  kNarrowGradients = 16,  // gradients of keys travel in the keys' type, not in float32
  kRankInvariant = 32     // the same bits for any number of ranks and any layout
};

}  // namespace lathe

struct lathe_group {
  lathe_context* context = nullptr;
  std::shared_ptr<lathe::Group> group;
  // lathe_group_share_tuned sets the choices that the ranks agreed on, and their digest; null and
  // 0: nothing tuned is used.
  std::shared_ptr<const lathe::Choices> choices;
  uint64_t choices_digest = 0;
};

namespace lathe {

// Holds what a plan made of a shard before its first run: tables on the device, schedules.
// Immutable.
class ShardState {
 public:
  virtual ~ShardState() = default;
  // Returns what `table` holds over another layout of the same capacity, which the shard's rank is
  // to have. Only states of shards with a capacity are asked.
  virtual Result<TableImage> image(const Layout&) const {
    return Status(Code::internal, "this state is of one layout");
  }

  DeviceTable table;  // everything of it that lies on the device, if it can be made for others
};

}  // namespace lathe

struct lathe_shard {
  lathe::Layout layout;
  int rank = 0;
  lathe::PartContext view;  // of the last lathe_shard_view_of

  struct ForPlan {
    uint64_t plan = 0;  // lathe_plan::id
    std::unique_ptr<const lathe::ShardState> state;
  };
  std::vector<ForPlan> states;
  std::shared_ptr<lathe::Group> group;  // of the plan it was prepared for first

  // Returns null if the shard was not prepared for the plan.
  const lathe::ShardState* find(uint64_t plan) const;
};
