// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The names that expressions of a description may use, and where their values lie.
#pragma once

#include "ops/own/description.h"

namespace lathe::own {

// Lays out the values of what has a name.
SymbolLayout lay_symbols(const Description& of);

// Which dims may be used: those of what is compiled, those that tensors give, or all.
enum class Dims { compiled, given, all };
// Returns what an expression may name. `constants`: how many of them.
Scope scope_of(const Description& of, Dims dims, size_t constants);

}  // namespace lathe::own
