// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The parts of `lathe cache` share these declarations.
#pragma once

#include <string>
#include <vector>

#include "api/cli/device.h"
#include "api/cli/reports/report.h"

namespace lathe::cli {

struct CacheOptions {
  std::string cache_dir;
  std::string max_bytes;
  std::string bundle;             // the file that is written, unpacked, verified or listed
  std::vector<std::string> from;  // bundles to merge
  std::vector<std::string> keys;  // kernels to pack
  bool tiers = false;             // all that is found, not only the user's directory
  bool dry_run = false;
  bool json = false;
};

Context open_cache(const CacheOptions& options);
// The lines of a text that ends each with a newline.
Json lines_of(const std::string& text);

int pack_bundle(const CacheOptions& options);
int unpack_bundle(const CacheOptions& options);
int merge_bundles(const CacheOptions& options);
int verify_bundle(const CacheOptions& options);
// Lists the kernels of a bundle, or of every tier of the cache.
int list_kernels(const CacheOptions& options);

}  // namespace lathe::cli
