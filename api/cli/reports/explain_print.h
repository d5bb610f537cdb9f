// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What explain says, for people, from the objects that --json prints.
#pragma once

#include <vector>

#include "api/cli/reports/report.h"

namespace lathe::cli {

// Kernels, what they are made of, and what they cost on one device.
void print_explained(const Json& report);

// The cost on several devices, side by side.
void print_side_by_side(const std::vector<Json>& reports);

}  // namespace lathe::cli
