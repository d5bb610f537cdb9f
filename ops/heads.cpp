// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/heads.h"

#include "codegen/base/invalid.h"

namespace lathe {

Status check_heads(int64_t heads, int64_t kv_heads, const char* keys) {
  if (heads == kUnknown || kv_heads == kUnknown) return {};
  if (kv_heads == 0 ? heads == 0 : heads % kv_heads == 0) return {};
  return invalid(text("q has H = ", heads, " and ", keys, " has HK = ", kv_heads,
                      "; allowed are H that are a multiple of HK"));
}

}  // namespace lathe
