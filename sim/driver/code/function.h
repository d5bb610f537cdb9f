// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Functions and kernels answer for themselves, and take the attributes that can be set.
#pragma once

#include "sim/driver/entry.h"

namespace sim::driver {

// A CUfunction argument is a function or, in the current context, a kernel of a library.
CUresult resolve_function(Driver& driver, Context& context, CUfunction handle,
                          std::shared_ptr<Function>* out);
// Runs body(Function&, const Profile&) with what a CUfunction means and its device's profile.
template <typename F>
CUresult with_function(CUfunction handle, F body) {
  return with_context([&](Driver& driver, Lock&, Context& context) -> CUresult {
    std::shared_ptr<Function> function;
    const CUresult result = resolve_function(driver, context, handle, &function);
    return result != CUDA_SUCCESS ? result
                                  : body(*function, function->module->context->device->profile);
  });
}

// Finds the function of a library's kernel in this context, loading the library there if need be.
CUresult function_of_kernel(Driver& driver, Context& context, LibraryKernel& kernel,
                            std::shared_ptr<Function>* out);

// Prepares the launch of a graph's kernel node, with the same checks as any launch.
CUresult kernel_action(Driver& driver, Context& context, const CUDA_KERNEL_NODE_PARAMS& given,
                       Action* out);

CUresult get_attribute(const Function& function, const Profile& profile,
                       CUfunction_attribute attribute, int* out);
CUresult set_attribute(Function& function, const Profile& profile, CUfunction_attribute attribute,
                       int value);
// Says whether a block has registers enough. The guess alone does not say no.
bool registers_suffice(const Options& options, Function& function, const Profile& profile,
                       int threads);
CUresult param_info(const Kernel& kernel, size_t index, size_t* offset, size_t* bytes);

// Returns the most threads a block of this kernel may have on the device.
int max_threads(const Kernel& kernel, const Profile& profile);
// Returns the number of blocks that fit on one multiprocessor. The first function leaves registers
// out. The second one answers at least 1 where they alone are too few, as their number is a guess.
int most_blocks_per_multiprocessor(const Kernel& kernel, const Profile& profile, int threads,
                                   size_t dynamic_shared);
int blocks_per_multiprocessor(const Function& function, const Profile& profile, int threads,
                              size_t dynamic_shared);

}  // namespace sim::driver
