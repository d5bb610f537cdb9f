// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "sim/exec/async/bulk.h"

namespace sim::base {

Handler resolve_tensor_copy(const Form&) { return nullptr; }

}  // namespace sim::base
