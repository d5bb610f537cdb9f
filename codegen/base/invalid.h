// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Makes refusals of what a caller gave.
#pragma once

#include <string>
#include <utility>

#include "codegen/base/status.h"
#include "codegen/base/text.h"

namespace lathe {

inline Status unsupported(std::string text) { return Status(Code::unsupported, std::move(text)); }
inline Status invalid(std::string text) { return Status(Code::invalid_argument, std::move(text)); }

// Returns INVALID_ARGUMENT if a required pointer argument is NULL.
inline Status require(const void* pointer, const char* argument) {
  return pointer ? Status() : invalid(text(argument, " is NULL, but must be given"));
}

}  // namespace lathe
