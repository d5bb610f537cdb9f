// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tells who asked for it of each kernel that was compiled: the function of lathe_on_compile, and
// the file of LATHE_COMPILE_LOG. Nothing is told of kernels that were found.
#pragma once

#include "cache/registry.h"
#include "ops/problem.h"

namespace lathe {

// Called by the thread that compiled, without any lock. `asker`: the problem of the call that needs
// the kernel; null: it was compiled ahead.
void tell_compiled(const BuiltKernel& built, const std::string& arch, const lathe_problem* asker);

// "kda_decode(qkv bf16[64,4608], ...)": the tensors of a call and the options that are set.
std::string call_text(const lathe_problem& problem);

}  // namespace lathe
