// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads a tensor of a description: x = { in = "f32", shape = "T D", optional = true, ... }
#pragma once

#include "ops/own/names.h"

namespace lathe::own {

// Adds the tensor and the dims of its shape, whose names must be free.
Status read_tensor_text(const TomlReader& reader, const Entry& entry, Names* names,
                        Description* description);

}  // namespace lathe::own
