// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Draws nonces from the kernel.
#include "collective/rendezvous/nonce.h"

#include <sys/random.h>

#include "cache/directory.h"
#include "codegen/base/text.h"

namespace lathe {

Result<Nonce> draw_nonce() {
  Nonce out;
  const ssize_t got = uninterrupted([&] { return getrandom(out.data(), out.size(), 0); });
  if (got == static_cast<ssize_t>(out.size())) return out;
  return Status(Code::internal, text("the system gives no random bytes: ", reason(errno)));
}

}  // namespace lathe
