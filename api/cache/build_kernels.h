// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Builds the kernels of a plan, side by side where they have to be compiled.
#pragma once

#include <memory>
#include <vector>

#include "api/cache/workers.h"
#include "api/context.h"
#include "codegen/spec.h"

namespace lathe {

// Returns the specs that plans of the problem in the context are made of; nothing is compiled. If
// the problem was read from a line and names a group, choices follow the rules and what is tuned
// here, which its ranks may come to share.
Result<std::vector<KernelSpec>> kernels_to_warm(const lathe_context& context,
                                                const lathe_problem& problem);

// Returns the kernels in the order of `specs`, or the first failure in that order. Counts each
// kernel in the context. `most` is the number of threads; 0: as many as cores and memory allow.
Result<std::vector<std::shared_ptr<const BuiltKernel>>> build_kernels(
    lathe_context& context, const std::vector<KernelSpec>& specs, int most = 0);

// Does the same and loads the kernels into the context's device, if there is one: in the order of
// `specs` and each as soon as it can be, so that the next one is read into the memory that its code
// was in. Kernels loaded before a failure stay loaded, and the next plan finds them.
Result<std::vector<LoadedKernel>> load_kernels(lathe_context& context,
                                               const std::vector<KernelSpec>& specs);

// Calls build_counted as work for work_through, which must not throw.
Result<std::shared_ptr<const BuiltKernel>> build_safely(lathe_context& context,
                                                        const KernelSpec& spec, const Busy& busy);

}  // namespace lathe
