// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The compiler of a registry's threads, opened when something is compiled. Its identity, which is
// in every key, is known without, once a process of this machine has noted it in the cache.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "cache/store/store.h"
#include "codegen/nvrtc.h"

namespace lathe {

// Thread-safe.
class SharedCompiler {
 public:
  // `driver_version`: of the driver that loads the code; 0: not known.
  SharedCompiler(Store& store, int driver_version)
      : store_(store), driver_version_(driver_version) {}

  Result<std::shared_ptr<const Compiler>> open();
  // Returns the identity of the open compiler, or of the one that would be opened if a note tells
  // it; else opens the compiler.
  Result<std::string> identity();

 private:
  Store& store_;
  const int driver_version_;
  std::mutex mutex_;
  std::shared_ptr<const Compiler> compiler_;  // guarded by mutex_, as are the following
  std::optional<std::string> remembered_;     // its identity, while it is not open
  bool recalled_ = false;
};

}  // namespace lathe
