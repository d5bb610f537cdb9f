// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The cache as its users see it: what is there, and whether it is whole.
#include "api/boundary.h"
#include "api/context.h"

using lathe::boundary;
using lathe::require;
using lathe::Status;

namespace {

Status require_directory(const lathe_context& context) {
  if (!context.store->root().empty()) return {};
  return Status(lathe::Code::cache_io, "the cache is in memory only: " + context.store->problem());
}

}  // namespace

extern "C" {

lathe_status lathe_cache_stat(lathe_context* context, lathe_cache_info* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(context, "context"));
    LATHE_TRY(lathe::check_sized(out));
    const lathe::StoreStat stat = context->store->stat();
    lathe_cache_info info = {};
    info.directory = context->store->root().c_str();
    info.entries = stat.entries;
    info.bytes = stat.bytes;
    info.hits = stat.hits;
    info.misses = stat.misses;
    info.corrupt = stat.corrupt;
    info.published = stat.published;
    info.publish_failures = stat.publish_failures;
    lathe::give_sized(info, out);
    return {};
  });
}

lathe_status lathe_cache_verify(lathe_context* context, uint64_t* checked, uint64_t* removed,
                                const char** problems) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(context, "context"));
    LATHE_TRY(require_directory(*context));
    lathe::VerifyReport report = context->store->verify();
    if (checked) *checked = report.checked;
    if (removed) *removed = report.removed;
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->verify_problems = std::move(report.problems);
    if (problems) *problems = context->verify_problems.c_str();
    return {};
  });
}

}  // extern "C"
