// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes specs and grids of the kernels that copy and add up the rows which ranks send each other.
// Pure functions of integers.
#pragma once

#include <cstdint>

#include "ops/kernel.h"

namespace lathe {

// copy_rows copies one tensor, by an index or as it is.
enum class RowIndex { none, gather, scatter };
// `vector_bytes`: 2, 4, 8 or 16; every address, stride and row is a multiple.
KernelSpec copy_rows_spec(RowIndex index, int vector_bytes);
// Holds what one access of copy_rows takes, in bytes, or of sum_parts, in elements.
struct VectorNumbers {
  VectorNumbers() = default;
  VectorNumbers(const KernelSpec& spec) : vector(spec.constant("vector")) {}
  int64_t vector = 0;
};
using VectorSlot = NumberedSlot<VectorNumbers>;
// move_rows copies rows of heads of several tensors. `word_bytes` is 16 or 4; a row of one head has
// a whole number of words.
KernelSpec move_rows_spec(int word_bytes);

// add_rows computes a + b -> out; b is float32. Addresses are multiples of 16 bytes.
KernelSpec add_rows_spec(Dtype a, Dtype out);
// sum_parts adds parts of the tokens that lie one after another. `vector` is 1, 2 or 4 elements;
// every row and every address is a multiple.
KernelSpec sum_parts_spec(Dtype part, Dtype out, int vector);
// sum_rows adds terms of `in` and rounds the sum to `out`. `listed`: the number of terms of a token
// varies.
KernelSpec sum_rows_spec(Dtype in, Dtype out, bool listed);

// repeat_offsets gives the offsets of one row's pieces to all rows of a batch, a thread for each.
KernelSpec repeat_offsets_spec();

// Returns how many threads share a token of copy_rows or sum_parts, as log2.
int lane_bits_of(const KernelSpec& spec, int64_t vectors);
// Returns the thread blocks for `cells` tokens in all rows of the batch. The caller compares the
// number with 2^31 - 1, here and below.
int64_t row_blocks(const KernelSpec& spec, int64_t cells, int lane_bits);
// Returns the thread blocks for `items` words of move_rows, elements of add_rows, columns of
// sum_rows.
int64_t item_blocks(const KernelSpec& spec, int64_t items);

}  // namespace lathe
