// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chooses the device that the program works on.
#include "api/cli/device.h"

#include <cstdlib>
#include <filesystem>

#include "api/cli/reports/progress.h"

namespace lathe::cli {
namespace {

constexpr const char* kArchOfNone = "sm_90a";  // no device has one to say

lathe_status create(Context* out, lathe_device_kind kind, const DeviceOptions& options) {
  lathe_context_options wanted = LATHE_CONTEXT_OPTIONS_INIT;
  wanted.device = kind;
  if (!options.arch.empty()) {
    wanted.arch = options.arch.c_str();
  } else if (kind == LATHE_DEVICE_NONE) {
    wanted.arch = kArchOfNone;
  }
  if (!options.cache_dir.empty()) wanted.cache_dir = options.cache_dir.c_str();
  lathe_context* context = nullptr;
  const lathe_status status = lathe_context_create(&context, &wanted);
  out->reset(context);
  return status;
}

lathe_device_kind kind_of(const std::string& word) {
  if (word == "cuda") return LATHE_DEVICE_CUDA;
  if (word == "sim") return LATHE_DEVICE_SIM;
  return LATHE_DEVICE_NONE;
}

// Returns what `auto` means here; "auto" if the environment leaves it open.
std::string chosen_device(const std::string& device) {
  if (device != "auto") return device;
  const char* text = std::getenv("LATHE_DEVICE");
  const std::string word = text && *text ? text : "auto";
  if (word != "auto" && word != "cuda" && word != "sim") {
    refuse("LATHE_DEVICE is " + in_quotes(word) + ", allowed: auto, cuda, sim");
  }
  return word;
}

}  // namespace

Context open_context(const DeviceOptions& options) {
  Context context;
  const std::string device = chosen_device(options.device);
  if (device != "auto") {
    check(create(&context, kind_of(device), options));
    return context;
  }
  const lathe_status status = create(&context, LATHE_DEVICE_CUDA, options);
  if (status == LATHE_OK) return context;
  if (status == LATHE_INVALID_ARGUMENT) check(status);
  const std::string why = lathe_last_error();
  check(create(&context, LATHE_DEVICE_SIM, options));
  // The reason without the remedy, which is what happens here anyway.
  say("no GPU can be used (" + why.substr(0, why.find_first_of(";\n")) +
      "), running on the simulator");
  return context;
}

void choose_nccl_for_threads(const lathe_context* context) {
  if (context_info(context).device != LATHE_DEVICE_CUDA || std::getenv("LATHE_NCCL")) return;
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  // In the build tree, and where it is installed.
  for (const char* place : {"sim", "lib/lathe/sim"}) {
    const auto library = program.parent_path().parent_path() / place / "libnccl.so.2";
    if (std::filesystem::exists(library, error)) {
      setenv("LATHE_NCCL", library.c_str(), 1);
      return;
    }
  }
}

lathe_context_info context_info(const lathe_context* context) {
  return told<lathe_context_info>(lathe_context_get_info, context);
}

const char* device_word(lathe_device_kind kind) {
  constexpr const char* kWords[] = {"default", "cuda", "sim", "none"};
  return kWords[kind];
}

}  // namespace lathe::cli
