// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The digest of a text that lies in three pieces: an entry is hashed without copying it.
#pragma once

#include <string_view>

#include "cache/key.h"

namespace lathe {

// digest() of the pieces joined.
Digest digest(std::string_view first, std::string_view second, std::string_view third);

}  // namespace lathe
