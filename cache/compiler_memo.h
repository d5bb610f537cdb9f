// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Which compiler the loader would open, as remembered in the cache: opening it costs ten times what
// a warm start costs, and the key needs no more of it than its identity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cache/store/store.h"
#include "codegen/compiler_library.h"
#include "codegen/nvrtc.h"

namespace lathe {

// Made before the compiler is opened: what is in the process by then answers in place of the files.
class CompilerMemo {
 public:
  CompilerMemo(Store& store, int driver_version);

  // The identity of the compiler that Compiler::open({}, driver_version) would give, if all that
  // decides it is as it was when a compiler was last noted: the candidates, the loader's folders,
  // and device, inode, size and times of every file that is tried up to the one that opens. Nothing
  // otherwise.
  std::optional<std::string> recall() const;
  // Notes what was opened since; nothing if a file may have changed meanwhile. Failing is fine.
  void note(const Compiler& opened) const;

 private:
  Store& store_;
  int driver_version_;
  CompilerSearch search_;
  int64_t begun_;  // CLOCK_REALTIME, nanoseconds
};

}  // namespace lathe
