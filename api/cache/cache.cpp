// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The cache as its users see it: what is there, and whether it is whole.
#include "api/boundary.h"
#include "api/context.h"

using lathe::boundary;
using lathe::require;
using lathe::Status;

lathe::Status lathe::require_directory(const lathe_context& context) {
  if (!context.store->root().empty()) return {};
  return Status(Code::cache_io, "the cache is in memory only: " + context.store->problem());
}

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
    LATHE_TRY(lathe::require_directory(*context));
    lathe::VerifyReport report = context->store->verify();
    if (checked) *checked = report.checked;
    if (removed) *removed = report.removed;
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->verify_problems = std::move(report.problems);
    if (problems) *problems = context->verify_problems.c_str();
    return {};
  });
}

lathe_status lathe_cache_trim(lathe_context* context, uint64_t max_bytes, int dry_run,
                              lathe_trim_report* out) {
  return boundary([&]() -> Status {
    LATHE_TRY(require(context, "context"));
    LATHE_TRY(lathe::check_sized(out));
    LATHE_TRY(lathe::require_directory(*context));
    lathe::TrimReport report = context->store->trim(max_bytes, dry_run != 0);
    lathe_trim_report told = {};
    told.entries = report.entries;
    told.bytes = report.bytes;
    told.removed = report.removed;
    told.freed = report.freed;
    told.temporaries = report.temporaries;
    told.busy = report.busy;
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->trimmed_names = std::move(report.names);
    told.names = context->trimmed_names.c_str();
    lathe::give_sized(told, out);
    return {};
  });
}

}  // extern "C"
