// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans the halo exchange of causal_conv1d (which ranks' tail rows a rank's shard may need) and
// runs forward and backward around steps that the caller supplies. This code uses neither NVRTC nor
// C structs.
//
// The plan depends on the part bounds and the width alone, not on cu_seqlens: a rank receives all
// W - 1 tail rows of every rank that owns a position of [begin - (W - 1), begin), and the kernels
// pick by cu_seqlens on the device. So changing lengths costs nothing on the host, and a graph that
// was captured once stays right. Usually that is one message from the neighbour.
#pragma once

#include <array>
#include <cstddef>

#include "collective/group.h"
#include "collective/plans/shard.h"
#include "templates/params/conv.h"

namespace lathe {

struct HaloPeer {
  int rank = 0;
  Interval part;
};

// Holds the distinct non-empty shards that touch a window of W - 1 tokens. There are at most W - 1,
// kept in place so that every run can make a plan without allocating.
class HaloPeers {
 public:
  void push_back(const HaloPeer& peer) { items_[size_++] = peer; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const HaloPeer& operator[](size_t i) const { return items_[i]; }
  const HaloPeer* begin() const { return items_.data(); }
  const HaloPeer* end() const { return items_.data() + size_; }

 private:
  std::array<HaloPeer, kConvMaxMessages> items_;
  size_t size_ = 0;
};

struct HaloPlan {
  Interval part;
  HaloPeers sources;       // ranks whose tail rows reach here, nearest first
  HaloPeers destinations;  // ranks that need this rank's tail rows, nearest first: ascending
  bool aligned = false;  // one source: it ends where this part begins, its rows are the halo as is
};
// `rank` is within the partition, `width` is 2..kConvMaxMessages + 1. The function does not
// allocate, and visits only the ranks within reach and the empty shards between them.
HaloPlan halo_plan(const Partition& partition, int rank, int width);

// Says where the messages lie. One message is width - 1 rows of batch * channels elements, always
// whole.
struct HaloBuffers {
  void* send = nullptr;  // forward: this rank's tail rows; backward: its dhalo
  void* receive =
      nullptr;  // forward: a message slot per source, backward: per destination, in order
  size_t message_bytes = 0;
};

// A step enqueues work on `stream` and returns at once. If `run` is null there is nothing to do.
struct Step {
  Status (*run)(void* user, CUstream stream) = nullptr;
  void* user = nullptr;
};

// Forward, for every rank, also those that only send or have no tokens:
//   stream:   pack | interior ................ | join | boundary
//   exchange:      | tail rows to destinations |
// `interior` computes the outputs that need no halo, `boundary` the rest. `pack` runs if there are
// destinations, `join` if there are sources. The exchange is one NCCL group, or no NCCL call if
// there are no peers. The device's context must be current for all functions below.
Status conv_halo_forward(Group& group, const HaloPlan& plan, const HaloBuffers& rows, Step pack,
                         Step interior, Step join, Step boundary, CUstream stream);

// In the backward the rows travel as in the forward. Then the gradients of the halo travel back and
// are added, if there are destinations.
//   stream:   pack | first half of the interior | join | boundary | second half ... | add
//   exchange:      | tail rows                  |                 | dhalo to sources |
// Right after a forward of the same call the halo is there already. Then every rank passes `rows`
// without bytes and null steps `pack` and `join`, which leaves the first exchange out.
Status conv_halo_backward(Group& group, const HaloPlan& plan, const HaloBuffers& rows,
                          const HaloBuffers& gradients, Step pack, Step first_half, Step join,
                          Step boundary, Step second_half, Step add, CUstream stream);

}  // namespace lathe
