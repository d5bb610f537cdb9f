// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads the launches of a description: [launch], or a [[kernel]] for each of several.
#pragma once

#include <vector>

#include "ops/own/toml_reader.h"

namespace lathe::own {

// The names that expressions may use: those of a grid, and those of what is compiled.
struct KernelScopes {
  Scope call, compiled;
};

// Adds the kernels that the sections have.
Status read_kernel_texts(const TomlReader& reader, const std::vector<Entry>& sections,
                         const KernelScopes& scopes, Description* description);

}  // namespace lathe::own
