// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What a run says about itself: the object of --json.
#pragma once

#include <nlohmann/json.hpp>

#include "api/cli/device.h"

namespace lathe::cli {

using Json = nlohmann::ordered_json;

struct KernelUse {
  std::string name, key;
  std::string from;  // "compiler", "disk", "bundle", "memory"
};

struct Report {
  std::string device, device_name, arch;
  std::vector<KernelUse> kernels;

  explicit Report(const lathe_context* context);
  // Kernels that several plans share are listed once, by where the first of them got it: what one
  // rank compiled and the others found in memory was compiled.
  void add(const lathe_plan* plan);
  void add(const std::vector<KernelUse>& uses);
  size_t compiled() const;
  size_t hits() const { return kernels.size() - compiled(); }
  Json json() const;
};

std::vector<KernelUse> kernel_uses(const lathe_plan* plan);
lathe_kernel_info kernel_info(const lathe_plan* plan, size_t index);

// One object on standard output.
void print_json(const Json& json);

}  // namespace lathe::cli
