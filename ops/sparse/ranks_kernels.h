// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Key gradients of sparse attention over ranks, joined by the rank that holds the keys: kernel and
// grid. Pure.
#pragma once

#include "codegen/spec.h"
#include "ops/kernel_problems.h"

namespace lathe {

// `part`: what gradients of other ranks' rows come in, float32 or the keys' type.
KernelSpec sparse_join_spec(Dtype element, Dtype part);
// Of a tensor with `rows` rows of all key heads.
int64_t sparse_join_blocks(const KernelSpec& spec, int64_t rows, int64_t width);
int64_t sparse_join_sinks_blocks(const KernelSpec& spec, int64_t heads);

}  // namespace lathe
