// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Opens a context from --device, --arch and --cache-dir.
#pragma once

#include "api/cli/handles.h"

namespace lathe::cli {

struct DeviceOptions {
  std::string device = "auto";  // auto, cuda, sim, none
  std::string arch;             // "": the device's own; sm_90a where there is none to ask
  std::string cache_dir;        // "": the library's choice
};

// `auto` is LATHE_DEVICE if that is set, else the GPU, else the simulator, with a line that says
// so.
Context open_context(const DeviceOptions& options);

// Ranks that are threads share one device, which the real NCCL refuses; unless LATHE_NCCL names
// another, the drop-in beside the program takes its place. Before the first group.
void choose_nccl_for_threads(const lathe_context* context);

lathe_context_info context_info(const lathe_context* context);
const char* device_word(lathe_device_kind kind);  // "sim"

}  // namespace lathe::cli
