// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The libraries libcudart.so.12 and libcudart.so.13 do these things differently; each has a file of
// its own.
#pragma once

#include "sim/runtime/entry.h"

namespace sim::runtime {

// The tool kit whose runtime this is: 13000 is CUDA 13.0. A program that names no version of a
// driver's call means the one of its tool kit.
extern const unsigned kToolkitVersion;

}  // namespace sim::runtime
