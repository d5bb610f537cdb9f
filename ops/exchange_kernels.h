// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The kernels between exchanges on the host: specs, grids and costs. Pure functions of integers.
#pragma once

#include <cstdint>

#include "codegen/launch_shape.h"
#include "codegen/spec.h"

namespace lathe {

enum class RowIndex { none, gather, scatter };
// `vector_bytes`: 2, 4, 8 or 16; every address, stride and row is a multiple.
KernelSpec copy_rows_spec(RowIndex index, int vector_bytes);
// a + b -> out; b is float32. Addresses are multiples of 16 bytes.
KernelSpec add_rows_spec(Dtype a, Dtype out);
// `vector`: 1, 2 or 4 elements that every row and every address is a multiple of.
KernelSpec sum_parts_spec(Dtype part, Dtype out, int vector);

// The widest of 16, 8, 4 and 2 bytes, at most `most`, that divides `bytes`.
int vector_bytes_of(int64_t bytes, int most = 16);

// Threads that share a token of copy_rows or sum_parts, as a power of two.
int lane_bits_of(const KernelSpec& spec, int64_t vectors);
// Of `cells` tokens in all rows of the batch. The caller compares cells with 2^31 - 1.
int64_t row_blocks(const KernelSpec& spec, int64_t cells, int lane_bits);
int64_t add_rows_blocks(const KernelSpec& spec, int64_t count);

}  // namespace lathe
