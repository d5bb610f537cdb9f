// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these structs to the kernels that add float32 values exactly, so that a sum does
// not depend on the order of its terms, nor on who adds which of them. Widest fields first, no
// holes.
#pragma once

namespace lathe {

// An exact sum has this many signed words of 64 bits: nine of 32 bits of the sum each, from the
// smallest subnormal float32 up, with room for carries, and one that counts terms that are not
// finite. Words of several sums are added as integers.
constexpr int kExactWords = 10;

// sums[w, c] = word w of the sum over rows r of terms[r, c].
struct ExactSumsParams {
  const void* terms;     // float32 [rows, row_stride]
  void* sums;            // int64 [kExactWords, columns]
  long long row_stride;  // in elements
  int rows, columns;
};

// out[c] = the sum of column c, rounded once. Words are read and written columns apart.
struct ExactRoundParams {
  const void* sums;  // int64 [kExactWords, columns]
  void* out;         // float32 [columns]
  int columns, reserved;
};

}  // namespace lathe
