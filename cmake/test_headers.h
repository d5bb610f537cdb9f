// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Precompiled once for all test programs: doctest, and cmake/standard_headers.h.
#include <doctest/doctest.h>

#include <random>

#include "cmake/standard_headers.h"
