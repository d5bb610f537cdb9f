// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The cache as its users see it: what is there, and whether it is whole. The library writes a
// caller's own files as it publishes bundles.
#include "api/boundary.h"
#include "api/context.h"
#include "cache/store/new_file.h"

using namespace lathe;

namespace {

// The counts that the whole cache and each tier have.
template <typename Info>
void take(const StoreStat& stat, Info* info) {
  info->entries = stat.entries;
  info->bytes = stat.bytes;
  info->hits = stat.hits;
  info->misses = stat.misses;
  info->corrupt = stat.corrupt;
}

}  // namespace

lathe::Status lathe::require_directory(const lathe_context& context) {
  if (!context.store->root().empty()) return {};
  return Status(Code::cache_io, "the cache is in memory only: " + context.store->problem());
}

extern "C" {

lathe_status lathe_cache_stat(lathe_context* context, lathe_cache_info* out) {
  return boundary({{context, "context"}}, [&] {
    const StoreStat stat = context->store->stat();
    lathe_cache_info info = {.directory = context->store->root().c_str(),
                             .published = stat.published,
                             .publish_failures = stat.publish_failures};
    take(stat, &info);
    return give_sized(info, out);
  });
}

lathe_status lathe_cache_verify(lathe_context* context, uint64_t* checked, uint64_t* removed,
                                const char** problems) {
  return boundary({{context, "context"}}, [&]() -> Status {
    LATHE_TRY(require_directory(*context));
    VerifyReport report = context->store->verify();
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
  return boundary({{context, "context"}}, [&]() -> Status {
    LATHE_TRY(check_sized(out));
    LATHE_TRY(require_directory(*context));
    TrimReport report = context->store->trim(max_bytes, dry_run != 0);
    const std::lock_guard<std::mutex> lock(context->mutex);
    context->trimmed_names = std::move(report.names);
    return give_sized({.entries = report.entries,
                       .bytes = report.bytes,
                       .removed = report.removed,
                       .freed = report.freed,
                       .temporaries = report.temporaries,
                       .busy = report.busy,
                       .names = context->trimmed_names.c_str()},
                      out);
  });
}

size_t lathe_cache_tier_count(const lathe_context* context) {
  return context ? 1 + context->tiers->read_only().size() : 0;
}

lathe_status lathe_cache_tier(lathe_context* context, size_t index, lathe_tier_info* out) {
  return boundary({{context, "context"}}, [&]() -> Status {
    const size_t count = lathe_cache_tier_count(context);
    if (index >= count)
      return invalid(text("index is ", index, ", but the cache has ", count, " tiers"));
    lathe_tier_info info = {};
    StoreStat stat;
    if (index == 0) {
      info.kind = "directory";
      info.path = context->store->root().c_str();
      info.problem = context->store->problem().c_str();
      stat = context->store->stat();
    } else {
      ReadOnlyTier& tier = *context->tiers->read_only()[index - 1];
      info.kind = tier.origin() == Origin::bundle ? "bundle" : "read-only";
      info.path = tier.name().c_str();
      info.problem = tier.problem().c_str();
      stat = tier.stat();
    }
    take(stat, &info);
    return give_sized(info, out);
  });
}

lathe_status lathe_file_check(const char* path) {
  return boundary({{path, "path"}}, [&]() -> Status {
    return NewFile("file", path).create();  // and removed again
  });
}

lathe_status lathe_file_write(const char* path, const void* const* pieces, const size_t* bytes,
                              size_t count) {
  return boundary({{path, "path"}}, [&]() -> Status {
    if (count > 0) LATHE_TRY(require(pieces, "pieces"));
    if (count > 0) LATHE_TRY(require(bytes, "bytes"));
    NewFile file("file", path);
    LATHE_TRY(file.create());
    for (size_t i = 0; i < count; ++i) {
      if (bytes[i] == 0) continue;
      LATHE_TRY(require(pieces[i], "a piece"));
      LATHE_TRY(file.write({static_cast<const char*>(pieces[i]), bytes[i]}));
    }
    return file.put_in_place();
  });
}

}  // extern "C"
