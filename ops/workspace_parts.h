// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The parts of a workspace, one after another, each at a multiple of 256 bytes.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace lathe {

class WorkspaceParts {
 public:
  // Gives the offset of a part of `each` bytes times the factors. After a sum beyond 2^63 every
  // further part fails as well.
  bool add(int64_t* offset, int64_t each, std::initializer_list<int64_t> factors) {
    int64_t bytes = each;
    *offset = total_;
    for (const int64_t factor : factors) {
      fits_ = fits_ && !__builtin_mul_overflow(bytes, factor, &bytes);
    }
    fits_ = fits_ && !__builtin_add_overflow(total_, bytes, &total_) &&
            !__builtin_add_overflow(total_, kAlignment - 1, &total_);
    if (fits_) total_ -= total_ % kAlignment;
    return fits_;
  }
  bool fits() const { return fits_; }
  int64_t total() const { return total_; }

 private:
  static constexpr int64_t kAlignment = 256;
  int64_t total_ = 0;
  bool fits_ = true;
};

}  // namespace lathe
