// The halo exchange of causal_conv1d: which ranks' tail rows a part may need, and the execution of
// forward and backward around steps that the caller supplies. Knows neither NVRTC nor C structs.
//
// The plan depends on the part bounds and the width alone, not on cu_seqlens: a rank receives all
// W - 1 tail rows of every rank that owns a position of [begin - (W - 1), begin), and the kernels
// pick by cu_seqlens on the device. So changing lengths costs nothing on the host, and a graph that
// was captured once stays right. Usually that is one message from the neighbour.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/group.h"
#include "collective/shard.h"

namespace lathe {

struct HaloPeer {
  int rank = 0;
  Interval part;
};

struct HaloPlan {
  Interval part;
  std::vector<HaloPeer> sources;       // ranks whose tail rows reach here, nearest first
  std::vector<HaloPeer> destinations;  // ranks that need this rank's tail rows, nearest first
  bool aligned = false;  // one source that ends where this part begins: its rows are the halo as is
};
HaloPlan halo_plan(const Partition& partition, int rank, int width);

// Where the bytes lie. One message is width - 1 rows of `row_elements` (batch * channels) elements.
struct HaloBuffers {
  void* send = nullptr;      // forward: this rank's tail rows; backward: its dhalo
  void* receive = nullptr;   // one message slot per peer, in the order of the plan's list
  size_t message_bytes = 0;
};

// A step enqueues work on `stream` and returns at once. Null: nothing to do.
struct Step {
  Status (*run)(void* user, CUstream stream) = nullptr;
  void* user = nullptr;
};

// Forward, for every rank, also those that only send or have no tokens:
//   stream:   pack | interior ................ | join | boundary
//   exchange:      | tail rows to destinations |
// `interior` is what needs no halo, `boundary` the rest.
Status conv_halo_forward(Group& group, const HaloPlan& plan, const HaloBuffers& rows, Step pack,
                         Step interior, Step join, Step boundary, CUstream stream);

// Backward: rows forward as above, then the gradients of the halo travel back and are added.
//   stream:   pack | first half of the interior | join | boundary | second half ... | add
//   exchange:      | tail rows                  |                 | dhalo to sources |
Status conv_halo_backward(Group& group, const HaloPlan& plan, const HaloBuffers& rows,
                          const HaloBuffers& gradients, Step pack, Step first_half, Step join,
                          Step boundary, Step second_half, Step add, CUstream stream);

// In-place float32 sum over ranks on the exchange stream, ordered after and before `stream`.
Status all_reduce_f32(Group& group, void* data, size_t count, CUstream stream);

}  // namespace lathe
