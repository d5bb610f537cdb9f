// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says which kernels the contexts of a test program choose from, as
// lathe_context_options.family does.
#pragma once

#include <string_view>

namespace apitest {

inline const char* family = nullptr;  // null: the library's default

// Contexts that are made while it lives choose from the kernels of one family.
class InFamily {
 public:
  explicit InFamily(const char* name) : before_(family) { family = name; }
  ~InFamily() { family = before_; }
  InFamily(const InFamily&) = delete;
  InFamily& operator=(const InFamily&) = delete;

 private:
  const char* before_;
};

inline bool in_family(std::string_view name) { return family != nullptr && name == family; }

}  // namespace apitest
