// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Stops an exception (memory) where it must not go further, since somebody waits or is to be
// joined.
#pragma once

#include <exception>

#include "codegen/base/status.h"

namespace lathe {

// Returns what body() returns, a Status or a Result; an exception as a Status.
template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Status(Code::internal, error.what());
  }
}

}  // namespace lathe
