// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions make and end contexts.
#pragma once

#include "sim/driver/entry.h"

namespace sim::driver {

void start_context(Driver& driver, Device& device, Context& context);

// Returns a live context; null if the handle is none.
std::shared_ptr<Context> find_context(Driver& driver, CUcontext handle);

// Writes what `value` says of a context, by its handle or with 0 the current one, to `out`.
template <typename Out, typename F>
CUresult ask_context(CUcontext handle, Out* out, F value) {
  return with_driver([&](Driver& driver, Lock&) -> CUresult {
    const Context* context =
        handle == nullptr ? current_context() : find_context(driver, handle).get();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *out = value(*context);
    return CUDA_SUCCESS;
  });
}

// Ends all peer access of and to a context.
void forget_peers(Driver& driver, Context& context);

// Ends all work, then frees and forgets everything the context owns. With `tell_leaks`, device
// memory that the caller never freed goes to the report.
void end_context(Driver& driver, Lock& lock, Context& context, bool tell_leaks);

// Removes a module's functions, variables and handle; its memory goes when the work that may use
// it is over (`now`: at once).
void unload_module(Driver& driver, Lock& lock, const std::shared_ptr<Module>& module, bool now);

// Takes a block out of the tables. The action gives the memory back.
Action forget_block(Driver& driver, uint64_t base);

}  // namespace sim::driver
