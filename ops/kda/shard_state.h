// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What kda makes of a shard before its first run.
#pragma once

#include "collective/exchange.h"
#include "collective/plans/kda_states.h"
#include "ops/device_table.h"
#include "ops/group.h"
#include "ops/tensors.h"

namespace lathe {

// What a plan made of a shard: who exchanges what, and the lengths of the part on the device.
struct KdaShardState final : ShardState {
  template <typename Offset>
  Status upload(const Device& device) {
    const std::vector<Offset> offsets(plan.cu_seqlens.begin(), plan.cu_seqlens.end());
    LATHE_ASSIGN(table, DeviceTable::upload(device, std::as_bytes(std::span(offsets))));
    return {};
  }

  DeviceTable table;  // cu_seqlens of the part, as the kernels read them
  KdaStatesPlan plan;
  KdaMessages messages;
  int64_t sequences = 0;  // of the whole axis; fixed lengths: not told
  // Filled by each run without allocating: a group, and so a plan and its shards, runs one call at
  // a time.
  mutable std::vector<Transfer> sends, receives;
};

inline const KdaShardState& state_of(const Call& call) {
  return *static_cast<const KdaShardState*>(call.shard_state);
}

}  // namespace lathe
