// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/work.h"

#include "codegen/base/invalid.h"

namespace lathe {

Status Sections::add(std::initializer_list<int64_t> factors, int64_t* offset, int64_t* bytes) {
  auto size = checked_product("the workspace", factors);
  LATHE_TRY(size);
  *offset = total_;
  if (bytes) *bytes = *size;
  if (__builtin_add_overflow(total_, *size, &total_) ||
      __builtin_add_overflow(total_, kSectionBytes - 1, &total_)) {
    return invalid("the workspace passes 2^63 bytes");
  }
  total_ -= total_ % kSectionBytes;
  return {};
}

}  // namespace lathe
