// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The tiers of a context's cache, as its users see them.
#include "api/boundary.h"
#include "api/context.h"

using lathe::boundary;
using lathe::require;
using lathe::Status;

extern "C" {

size_t lathe_cache_tier_count(const lathe_context* context) {
  return context ? 1 + context->tiers->read_only().size() : 0;
}

lathe_status lathe_cache_tier(lathe_context* context, size_t index, lathe_tier_info* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(context, "context"));
    LATHE_TRY(lathe::check_sized(out));
    const size_t count = lathe_cache_tier_count(context);
    if (index >= count)
      return lathe::invalid(
          lathe::text("index is ", index, ", but the cache has ", count, " tiers"));
    lathe_tier_info info = {};
    lathe::StoreStat stat;
    if (index == 0) {
      info.kind = "directory";
      info.path = context->store->root().c_str();
      info.problem = context->store->problem().c_str();
      stat = context->store->stat();
    } else {
      lathe::ReadOnlyTier& tier = *context->tiers->read_only()[index - 1];
      info.kind = tier.origin() == lathe::Origin::bundle ? "bundle" : "read-only";
      info.path = tier.name().c_str();
      info.problem = tier.problem().c_str();
      stat = tier.stat();
    }
    info.entries = stat.entries;
    info.bytes = stat.bytes;
    info.hits = stat.hits;
    info.misses = stat.misses;
    info.corrupt = stat.corrupt;
    lathe::give_sized(info, out);
    return {};
  });
}

}  // extern "C"
