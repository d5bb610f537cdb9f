// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compiling ahead of time: what a plan would need, without a device.
#include "api/boundary.h"
#include "api/cache/build_kernels.h"
#include "api/cache/manifest.h"

extern "C" lathe_status lathe_warm(lathe_context* context, const lathe_problem* problem,
                                   uint64_t* compiled, uint64_t* hits) {
  return lathe::boundary([&]() -> lathe::Status {
    LATHE_TRY(lathe::require(context, "context"));
    LATHE_TRY(lathe::require(problem, "problem"));
    LATHE_ASSIGN(const auto specs, lathe::kernels_to_warm(*context, *problem));
    const auto all = lathe::build_kernels(*context, specs);
    LATHE_TRY(lathe::with_problem(all.status(), *problem));
    uint64_t fresh = 0, found = 0;
    for (const auto& built : *all) {
      ++(built->origin == lathe::Origin::compiler ? fresh : found);
    }
    if (compiled) *compiled = fresh;
    if (hits) *hits = found;
    return {};
  });
}
