// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// KernelSpec -> the emitted unit: include, Config, the host/device assertions, entry. At most 40
// lines; no loop, branch or arithmetic in emitted text.
#pragma once

#include <string>

#include "codegen/spec.h"

namespace lathe {

std::string emit_unit(const KernelSpec& spec, const std::string& arch);

}  // namespace lathe
