// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The operator table in words.
#pragma once

#include <string>

#include "api/lathe.h"

namespace lathe::cli {

// Tensors, shapes, options, defaults and sentences of one operator, in lines.
std::string operator_text(const lathe_operator_info& op);

}  // namespace lathe::cli
