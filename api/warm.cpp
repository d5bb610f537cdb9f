// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Compiling ahead of time: what a plan would need, without a device.
#include "api/boundary.h"
#include "api/convert.h"
#include "api/plan.h"
#include "api/tune_choices.h"

extern "C" lathe_status lathe_warm(lathe_context* context, const lathe_problem* problem,
                                   uint64_t* compiled, uint64_t* hits) {
  return lathe::boundary([&]() -> lathe::Status {
    LATHE_TRY(lathe::require(context, "context"));
    LATHE_TRY(lathe::require(problem, "problem"));
    LATHE_ASSIGN(const lathe::Extents promised, lathe::check_problem(*problem));
    LATHE_ASSIGN(const auto work,
                 lathe::make_work(*problem, promised, lathe::facts_for(*context, *problem)));
    uint64_t fresh = 0, found = 0;
    for (const lathe::KernelSpec& spec : work->specs()) {
      LATHE_ASSIGN(const auto built, lathe::build_counted(*context, spec));
      ++(built->origin == lathe::Origin::compiler ? fresh : found);
    }
    if (compiled) *compiled = fresh;
    if (hits) *hits = found;
    return {};
  });
}
