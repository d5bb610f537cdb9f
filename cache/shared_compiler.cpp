// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "cache/shared_compiler.h"

#include "cache/compiler_memo.h"

namespace lathe {

Result<std::shared_ptr<const Compiler>> SharedCompiler::open() {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (!compiler_) {
    const CompilerMemo memo(store_, driver_version_);
    LATHE_ASSIGN(compiler_, Compiler::open({}, driver_version_));
    memo.note(*compiler_);
  }
  return compiler_;
}

Result<std::string> SharedCompiler::identity() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (compiler_) return compiler_->identity();
    if (!recalled_) remembered_ = CompilerMemo(store_, driver_version_).recall();
    recalled_ = true;
    if (remembered_) return *remembered_;
  }
  // When many processes start at once into an empty cache, one opens the compiler, which costs more
  // than all else up to the lock of the key, and the others read its note. They take turns; without
  // a lock, or if one takes too long, each opens its own.
  static const Key kTurn{digest("which compiler"), "which compiler"};
  const Store::Lock turn = store_.lock(kTurn);
  if (auto noted = CompilerMemo(store_, driver_version_).recall()) {
    const std::lock_guard<std::mutex> guard(mutex_);
    remembered_ = noted;
    return *noted;
  }
  LATHE_ASSIGN(const std::shared_ptr<const Compiler> opened, open());
  return opened->identity();
}

}  // namespace lathe
