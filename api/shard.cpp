// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// How a sequence axis is cut, and a rank's view of packed sequences on it.
#include <climits>

#include "api/boundary.h"
#include "api/group.h"

namespace lathe {
namespace {

Result<Partition> make_partition(int world, int64_t length, const int64_t* bounds) {
  if (length < 0 || length > INT_MAX) {
    return invalid(text("length is ", length, "; allowed are 0 to ", INT_MAX));
  }
  if (!bounds) return even_partition(length, world);
  Partition partition;
  partition.bounds.assign(bounds, bounds + world + 1);
  LATHE_TRY(check_partition(partition.bounds));
  if (partition.length() != length) {
    return invalid(text("bounds[", world, "] is ", partition.length(), ", but length is ", length));
  }
  return partition;
}

}  // namespace
}  // namespace lathe

using lathe::boundary;
using lathe::invalid;
using lathe::require;
using lathe::Status;
using lathe::text;

extern "C" {

lathe_status lathe_shard_create(lathe_shard** out, int world, int rank, int64_t length,
                                const int64_t* bounds) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(out, "out"));
    if (world < 1) return invalid(text("world is ", world, ", but must be 1 or more"));
    if (rank < 0 || rank >= world) {
      return invalid(text("rank is ", rank, "; allowed are 0 to ", world - 1));
    }
    auto shard = std::make_unique<lathe_shard>();
    LATHE_ASSIGN(shard->partition, lathe::make_partition(world, length, bounds));
    shard->rank = rank;
    *out = shard.release();
    return {};
  });
}

void lathe_shard_destroy(lathe_shard* shard) { delete shard; }

lathe_status lathe_shard_range(const lathe_shard* shard, int64_t* begin, int64_t* end) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(shard, "shard"));
    LATHE_TRY(require(begin, "begin"));
    LATHE_TRY(require(end, "end"));
    const lathe::Interval part = shard->partition.part(shard->rank);
    *begin = part.begin;
    *end = part.end;
    return {};
  });
}

lathe_status lathe_shard_view_of(lathe_shard* shard, const int64_t* cu_seqlens, size_t count,
                                 lathe_shard_view* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(shard, "shard"));
    LATHE_TRY(require(cu_seqlens, "cu_seqlens"));
    LATHE_TRY(lathe::check_sized(out));
    const std::vector<int64_t> offsets(cu_seqlens, cu_seqlens + count);
    LATHE_TRY(lathe::check_cu_seqlens(offsets, shard->partition.length()));
    LATHE_ASSIGN(auto contexts, lathe::part_contexts(offsets, shard->partition));
    for (lathe::PartContext& context : contexts) {
      if (context.rank == shard->rank) shard->view = std::move(context);
    }
    const lathe::PartContext& found = shard->view;
    lathe_shard_view view = {};
    view.cu_seqlens = found.cu_seqlens.data();
    view.sequence_ids = found.seq_ids.data();
    view.sequences = found.seq_ids.size();
    view.pre = found.pre;
    view.post = found.post;
    view.is_first = found.is_first;
    view.is_last = found.is_last;
    view.pre_tokens = found.pre_tokens;
    lathe::give_sized(view, out);
    return {};
  });
}

}  // extern "C"
