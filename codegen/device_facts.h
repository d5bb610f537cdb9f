// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The numbers of a device that choices depend on. From the driver, or by name where there is no
// GPU.
#pragma once

#include <string>
#include <vector>

#include "codegen/base/status.h"

namespace lathe {

struct DeviceFacts {
  std::string arch;  // "sm_90a": what is passed to NVRTC
  int multiprocessors = 0;
  int shared_bytes_per_block = 0;  // the opt-in limit
  int shared_bytes_per_multiprocessor = 0;
  int registers_per_multiprocessor = 65536;
  int l2_bytes = 0;
  double memory_bytes_per_second = 0;  // published peak, for estimates
};

// The architectures lathe compiles for, in the order of the support matrix.
const std::vector<std::string>& supported_archs();

// Facts of a representative device of an architecture; fails naming the archs there are.
Result<DeviceFacts> facts_of_arch(const std::string& arch);

// "sm_90a" for 9.0 and so on: the name under which a device of this compute capability compiles.
Result<std::string> arch_of_capability(int major, int minor);

}  // namespace lathe
