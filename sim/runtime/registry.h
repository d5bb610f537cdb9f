// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The registry has what nvcc's start-up code registers: fat binaries, and the host addresses that
// stand for their kernels and variables. A fat binary is loaded when something of it is used.
#pragma once

#include "sim/runtime/entry.h"

namespace sim::runtime {

// Finds the kernel that `symbol` stands for: the address of a __global__ function, or a handle.
Result find_kernel(const void* symbol, CUkernel* out);

// Finds the copy of a __device__, __constant__ or __managed__ variable on the current device.
Result find_variable(const void* symbol, CUdeviceptr* address, size_t* bytes);

// Finds `bytes` bytes of such a variable, `offset` bytes from its start.
Result find_range(const void* symbol, size_t offset, size_t bytes, void** out);

// Gives the __managed__ variables that the host uses their places on a device that was reset.
Result renew_managed();

// Kernels of libraries that the program loads itself may stand where a symbol is asked for.
void know_kernel(CUkernel kernel);

}  // namespace sim::runtime
