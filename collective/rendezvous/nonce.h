// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Nonces are numbers that nobody can guess and that never come twice.
#pragma once

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "cache/directory.h"
#include "codegen/base/status.h"
#include "codegen/base/text.h"

namespace lathe {

using Nonce = std::array<char, 16>;

// Returns INTERNAL if the kernel gives no random bytes.
inline Result<Nonce> draw_nonce() {
  Nonce out;
  if (getentropy(out.data(), out.size()) == 0) return out;
  return Status(Code::internal, text("the system gives no random bytes: ", reason(errno)));
}

inline std::string_view bytes_of(const Nonce& nonce) { return {nonce.data(), nonce.size()}; }

}  // namespace lathe
