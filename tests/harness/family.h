// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says which kernels the contexts of a test program choose from, as
// lathe_context_options.family does. A program names a family before any context is made; the
// argument --family=NAME of a program overrides it.
#pragma once

namespace apitest {

inline const char* family = nullptr;  // null: the library's default

inline bool choose_family(const char* name) {
  family = name;
  return true;
}

}  // namespace apitest
