// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Specs and grids of the kernels that copy and add up the rows which ranks send each other. Pure
// functions of integers.
#pragma once

#include <cstdint>

#include "codegen/launch_shape.h"
#include "codegen/spec.h"

namespace lathe {

// One tensor, by an index or as it is.
enum class RowIndex { none, gather, scatter };
// `vector_bytes`: 2, 4, 8 or 16; every address, stride and row is a multiple.
KernelSpec copy_rows_spec(RowIndex index, int vector_bytes);
// Rows of heads of several tensors. `word_bytes`: 16 or 4, of which a row of one head has a whole
// number.
KernelSpec move_rows_spec(int word_bytes);

// a + b -> out; b is float32. Addresses are multiples of 16 bytes.
KernelSpec add_rows_spec(Dtype a, Dtype out);
// Parts of the tokens that lie one after another. `vector`: 1, 2 or 4 elements that every row and
// every address is a multiple of.
KernelSpec sum_parts_spec(Dtype part, Dtype out, int vector);
// Sums of `in` that are rounded to `out`. Listed: how many terms a token has varies.
KernelSpec sum_rows_spec(Dtype in, Dtype out, bool listed);

// Threads that share a token of copy_rows or sum_parts, as a power of two.
int lane_bits_of(const KernelSpec& spec, int64_t vectors);
// Thread blocks for that many tokens in all rows of the batch. The caller compares what it counts
// with 2^31 - 1, here and below.
int64_t row_blocks(const KernelSpec& spec, int64_t cells, int lane_bits);
// Thread blocks for that many words of move_rows, elements of add_rows, columns of sum_rows.
int64_t item_blocks(const KernelSpec& spec, int64_t items);

}  // namespace lathe
