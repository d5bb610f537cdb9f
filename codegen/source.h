// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// KernelSpec -> the emitted unit: include, Config, the host/device assertions, entry. At most 40
// lines; no loop, branch or arithmetic in emitted text. With snippets the constants come first, in
// lathe::Constants, because their adapters want the types of captured arrays; Config adds a type
// for each snippet.
#pragma once

#include <string>

#include "codegen/spec.h"

namespace lathe {

std::string emit_unit(const KernelSpec& spec, const std::string& arch);

}  // namespace lathe
