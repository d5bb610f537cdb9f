// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Extents of KDA that follow from others or from values, and values that its kernels trust.
#pragma once

#include "ops/values.h"

namespace lathe {

// Chunks NT and slots of saved states. Of packed sequences as many chunks as there can be.
void derive_kda(const lathe_problem& problem, Extents* extents);
// Sets NT to the chunks that the offsets make.
Status check_kda_values(const Values& values);
// Slots of kda_recurrent: each below S, none in use by two sequences, accepted tokens that are
// columns, and a column for each token.
Status check_kda_slots(const Values& values);

}  // namespace lathe
