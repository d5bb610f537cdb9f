// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to KDA kernels with tensor maps: the portable kernel's
// parameters, and before them the maps, of four dimensions: column, token, head, sequence. Those of
// packed tensors are ragged: column, row, head, row again (common/box_coordinates.cuh).
#pragma once
#include "templates/params/kda_chunked.h"
#include "templates/params/tensor_map.h"

namespace lathe {

// A walk forward has rows of v, and of q if it gives outputs; a walk back has rows of q and of do.
struct KdaMaps {
  TensorMap q, k, g, v, d_o;  // g: of 16 bits
};

// States of slots have the dimensions column of K, row of V, head, slot.
// Gates of 32 bits have twice as many columns, of 16 bits: they are only asked for ahead.
struct KdaChunkMaps {
  TensorMap q, k, g, v, d_o, value_grads, saved_values;
  TensorMap saved_states, state_grads;
};

struct KdaForwardWarpgroupsParams {
  KdaMaps maps;
  KdaForwardParams forward;
};

// Numbers of a segment's end and map as kda_forward_cluster leaves them, of 128 rows and columns,
// in summaries and transitions [N, segments, HV, ..]: kda/sm90/cluster_chain.cuh.
constexpr int kKdaClusterEnd = 128 * 128, kKdaClusterMap = 128 * 128 / 2 + 128;
// Its first segment is to each other one as these.
constexpr int kKdaFirstShare = 5, kKdaOtherShare = 4;

struct KdaSummaryWarpgroupsParams {
  KdaMaps maps;
  KdaSummaryParams summary;
};

// The walk back: `forward_blocks` are none.
struct KdaBackwardScanWarpgroupsParams {
  KdaMaps maps;
  KdaBackwardScanParams scan;
};

struct KdaBackwardWarpgroupsParams {
  KdaChunkMaps maps;
  KdaBackwardParams backward;
  int ahead;  // thread blocks at a time: a block asks for the chunk of the one behind them
  int reserved;
};

}  // namespace lathe
