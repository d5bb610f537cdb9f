// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds what a launch asks for, and the checks that the hardware's driver makes too.
#pragma once

#include "sim/driver/state.h"

namespace sim::driver {

struct Request {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t cluster[3] = {0, 0, 0};
  uint32_t shared = 0;
  bool cooperative = false;
  bool early = false;  // may start before the end of the launch in front
};

inline uint64_t product(const uint32_t (&size)[3]) { return uint64_t{size[0]} * size[1] * size[2]; }

CUresult read_attributes(const CUlaunchConfig& config, Request* request);
// Checks the sizes of grid and block, and dynamic shared memory.
CUresult check_block(const Request& request, const Function& function);
// Settles the cluster's size: the launch's, or the one the kernel was compiled for.
CUresult check_cluster(Request* request, const Function& function, const Profile& profile);
// Reads the parameters from a list of pointers, or from a buffer.
CUresult read_params(const Kernel& kernel, void** each, void** extra, std::vector<uint8_t>* params);

}  // namespace sim::driver
