// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One hop between ranks: all its messages in one NCCL group on the exchange stream. Ungrouped sends
// and receives wait for each other in a circle; in a group they cannot.
#pragma once

#include <cstddef>
#include <span>

#include "collective/group.h"

namespace lathe {

// A message to or from `peer`. Between two ranks messages match in the order of their spans.
struct Transfer {
  int peer = 0;
  void* data = nullptr;
  size_t bytes = 0;
};
struct Hop {
  std::span<const Transfer> sends, receives;
  const char* name = "exchange";  // for messages: "the halo", "ring step"
  int step = 0;
};

// Messages of no bytes are left out, on both sides alike; a hop without messages is no NCCL call.
// INVALID_ARGUMENT for a peer outside the group, the rank itself, or a null buffer: nothing is
// enqueued then.
Status post(Group& group, const Hop& hop);

// The same after what `stream` has been given so far.
Status post_after(Group& group, const Hop& hop, CUstream stream);

bool is_empty(const Hop& hop);

}  // namespace lathe
