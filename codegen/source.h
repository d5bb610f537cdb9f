// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes the emitted unit of a KernelSpec: include, Config, the host/device assertions, entry. At
// most 40 lines; no loop, branch or arithmetic in emitted text. With mods the constants come first,
// in lathe::Constants, because their adapters want the types of captured arrays; Config adds a type
// for each mod.
#pragma once

#include <string>
#include <string_view>

#include "codegen/spec.h"

namespace lathe {

std::string emit_unit(const KernelSpec& spec, const std::string& arch);
// Does the same for a caller that has spec.text() already.
std::string emit_unit(const KernelSpec& spec, std::string_view spec_text, const std::string& arch);

}  // namespace lathe
