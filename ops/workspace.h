// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lays out a workspace: sections lie one after another, each at a multiple of 256 bytes.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "codegen/base/invalid.h"

namespace lathe {

// A workspace and each of its sections are aligned to this many bytes.
inline constexpr int64_t kSectionBytes = 256;

// Hands out offsets. A sum beyond 2^63 bytes is remembered, so the caller asks for `status` once,
// after the last section. Allocates nothing unless it fails.
class WorkspaceLayout {
 public:
  // Returns the offset of a section whose bytes are the product of `factors`, which also goes to
  // `bytes`.
  int64_t add(std::initializer_list<int64_t> factors, int64_t* bytes = nullptr) {
    const int64_t offset = total_;
    int64_t size = 1;
#pragma GCC unroll 8
    for (const int64_t factor : factors) {
      fits_ = !__builtin_mul_overflow(size, factor, &size) && fits_;
    }
    if (bytes != nullptr) *bytes = size;
    int64_t end = 0;
    fits_ = fits_ && !__builtin_add_overflow(total_, size, &end) &&
            !__builtin_add_overflow(end, kSectionBytes - 1, &end);
    if (fits_) total_ = end & -kSectionBytes;
    return offset;
  }
  int64_t total() const { return total_; }
  bool fits() const { return fits_; }
  // Returns INVALID_ARGUMENT if the sections do not fit in 2^63 bytes.
  Status status() const { return fits_ ? Status() : invalid("the workspace passes 2^63 bytes"); }

 private:
  int64_t total_ = 0;
  bool fits_ = true;
};

}  // namespace lathe
