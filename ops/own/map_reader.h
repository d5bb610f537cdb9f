// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads the tensor map of a tensor of a description: map = { box = "64 kTile", swizzle = 128 }
#pragma once

#include "ops/own/toml_reader.h"

namespace lathe::own {

// A box has an extent for each dimension of the tensor, the fastest first; `compiled` are the names
// that they may use.
Status read_map_text(const TomlReader& reader, const Entry& entry, const Scope& compiled,
                     TensorText* tensor);

}  // namespace lathe::own
