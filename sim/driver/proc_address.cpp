// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file handles cuGetProcAddress: names and versions to entry points.
#include <cstring>
#include <string_view>

#include "sim/driver/entry.h"
#include "sim/driver/symbols.h"

#undef cuGetProcAddress

namespace sim::driver {
namespace {

constexpr cuuint64_t kKnownFlags =
    CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

// CUDA 7.0 brought the per-thread twins; the functions themselves are older.
constexpr int kTwins = 7000, kBeforeTwins = 2000;

// Returns an exported name without its suffixes: "_v2", "_ptsz", "_ptds".
std::string_view plain_name(std::string_view name) {
  const size_t end = name.find('_');
  return name.substr(0, end);
}

// Returns the newest exported function of that name; null if there is none. It is called for names
// that kSymbols does not have, whose functions only say that they are not supported.
const Symbol* find_exported(const char* name) {
  const Symbol* best = nullptr;
  for (size_t at = 0; at < kExportedCount; ++at) {
    const std::string_view symbol = kExported[at].name;
    const bool twin = symbol.find("_pt") != std::string_view::npos;
    if (!twin && plain_name(symbol) == name) best = &kExported[at];  // in order, so _v3 is last
  }
  return best;
}

// Finds the newest entry not newer than `version`.
CUresult look_up(const char* name, void** out, int version, cuuint64_t flags,
                 CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || out == nullptr || (flags & ~kKnownFlags) != 0 || flags == kKnownFlags) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool twin = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const Symbol* best = nullptr;
  bool known = false;
  for (size_t at = 0; at < kSymbolCount; ++at) {
    const Symbol& symbol = kSymbols[at];
    if (std::strcmp(symbol.name, name) != 0) continue;
    known = true;
    const int since = twin || symbol.per_thread == nullptr || symbol.version != kTwins
                          ? symbol.version
                          : kBeforeTwins;
    if (since <= version && (best == nullptr || symbol.version > best->version)) {
      best = &symbol;
    }
  }
  if (!known) {
    best = find_exported(name);
    known = best != nullptr;
  }
  *out = nullptr;
  if (best != nullptr) {
    *out = reinterpret_cast<void*>(twin && best->per_thread != nullptr ? best->per_thread
                                                                       : best->entry);
  }
  if (status != nullptr) {
    *status = best != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS
              : known         ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                              : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return best != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

}  // namespace
}  // namespace sim::driver

SIM_API cuGetProcAddress(const char* name, void** out, int version, cuuint64_t flags) {
  return sim::driver::look_up(name, out, version, flags, nullptr);
}

SIM_API cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                            CUdriverProcAddressQueryResult* status) {
  return sim::driver::look_up(name, out, version, flags, status);
}

SIM_API cuGetExportTable(const void** out, const CUuuid*) {
  if (out != nullptr) *out = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
