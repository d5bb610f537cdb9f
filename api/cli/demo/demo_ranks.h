// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// `lathe demo --ranks N`: two layers with their tokens over ranks, against one rank.
#pragma once

#include "api/lathe.h"

namespace lathe::cli {

// The exit code.
int demo_ranks(lathe_context* context, int ranks, bool json);

}  // namespace lathe::cli
