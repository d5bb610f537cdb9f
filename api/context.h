// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A context: one device (or none), one cache and the registry between them. Immutable but for the
// registry and the counters, which lock inside.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "api/cache/record.h"
#include "api/lathe.h"
#include "cache/registry.h"
#include "cache/store/store.h"
#include "cache/tiers.h"
#include "cache/tuned_choices.h"
#include "device/driver.h"

struct lathe_context {
  lathe_device_kind kind = LATHE_DEVICE_NONE;
  std::shared_ptr<const lathe::Device> device;  // null with LATHE_DEVICE_NONE
  lathe::DeviceFacts facts;
  std::shared_ptr<lathe::Tiers> tiers;
  std::shared_ptr<lathe::Store> store;  // the first of them
  std::unique_ptr<lathe::Registry> registry;
  std::shared_ptr<lathe::Recorder> recorder;   // null: problems are not recorded
  std::shared_ptr<lathe::TunedChoices> tuned;  // null: LATHE_TUNED=off

  // Each kernel of each plan or warming counts once, by where it came from.
  std::atomic<uint64_t> compiled{0}, hits{0};

  mutable std::mutex mutex;  // of the texts below, which are lent
  std::string compiler;      // of the first kernel, and then left alone
  std::string verify_problems;
  std::string trimmed_names;  // guarded by mutex: of the last lathe_cache_trim
  std::string tuned_list;     // guarded by mutex: of the last lathe_tuned_list
};

namespace lathe {

// Builds one kernel and counts it. `busy` as in Registry::build. If it was compiled, the monitor is
// told; `asker` is the problem that needs it, null if it was asked for ahead.
Result<std::shared_ptr<const BuiltKernel>> build_counted(lathe_context& context,
                                                         const KernelSpec& spec,
                                                         const std::function<void()>& busy,
                                                         const lathe_problem* asker);

// Says that the simulator is open as `arch`. The first call decides: it has one profile in a
// process.
void sim_opened(const std::string& arch);

// Returns CACHE_IO, with the reason, if the cache is in memory only.
Status require_directory(const lathe_context& context);

// Returns NO_DEVICE, with the remedy, if the context only compiles.
Status require_device(const lathe_context& context, const char* what);

}  // namespace lathe
