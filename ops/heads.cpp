// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/heads.h"

#include "codegen/base/invalid.h"
#include "ops/fill.h"

namespace lathe {

TensorFields TensorFields::of(const char* op) {
  const Operator& table = *find_operator(op);
  TensorFields out;
#define LATHE_FIND(name) out.name = find_tensor(table, #name);
  LATHE_ACTIVATIONS(LATHE_FIND)
  LATHE_POINTERS(LATHE_FIND)
#undef LATHE_FIND
  return out;
}

Status check_heads(int64_t heads, int64_t kv_heads, const char* keys) {
  if (heads == kUnknown || kv_heads == kUnknown) return {};
  if (kv_heads == 0 ? heads == 0 : heads % kv_heads == 0) return {};
  return invalid(text("q has H = ", heads, " and ", keys, " has HK = ", kv_heads,
                      "; allowed are H that are a multiple of HK"));
}

}  // namespace lathe
