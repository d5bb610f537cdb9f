// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A whole problem against its operator's table.
#pragma once

#include "ops/problem.h"

namespace lathe {

// Required tensors, dtypes that must agree, extents that must agree. Gives the extents the problem
// promises, kUnknown where they vary.
Result<Extents> check_problem(const lathe_problem& problem);

// The same, for extents of a call: B is 1 with cu_seqlens, and N is B without.
Status settle_sequences(const Operator& op, bool packed, Extents* extents);

// The widest access of 16, 8, 4, 2 or 1 elements' bytes that an alignment and D elements allow.
int vector_bytes(Dtype dtype, int alignment, int64_t channels);

}  // namespace lathe
