// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Builds the kernels of a plan, side by side where they have to be compiled.
#pragma once

#include <vector>

#include "api/context.h"
#include "codegen/spec.h"

namespace lathe {

// Says whether kernels are loaded into the context's device, if there is one: in the order of the
// specs and each as soon as it can be, so that the next one is read into the memory that its code
// was in. Kernels loaded before a failure stay loaded, and the next plan finds them.
enum class Load { no, yes };

// Returns the kernels in the order of `specs`, or the first failure in that order; if that is one
// to build a kernel, `failed` is the kernel's index. Counts each kernel in the context. `most` is
// the number of threads; 0: as many as cores and memory allow. `asker` as build_counted takes it.
Result<std::vector<LoadedKernel>> build_kernels(lathe_context& context,
                                                const std::vector<KernelSpec>& specs, Load load,
                                                int most = 0, size_t* failed = nullptr,
                                                const lathe_problem* asker = nullptr);

}  // namespace lathe
