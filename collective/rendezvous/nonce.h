// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Nonces are numbers that nobody can guess and that never come twice.
#pragma once

#include <array>
#include <string_view>

#include "codegen/base/status.h"

namespace lathe {

using Nonce = std::array<char, 16>;

// Returns INTERNAL if the kernel gives no random bytes.
Result<Nonce> draw_nonce();

inline std::string_view bytes_of(const Nonce& nonce) { return {nonce.data(), nonce.size()}; }

}  // namespace lathe
