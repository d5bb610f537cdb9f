// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Activations with heads, as the attention families have them.
#pragma once

#include "ops/tensors.h"

namespace lathe {

// Where an activation lies, in the fields that every parameter struct has for it.
struct AttentionStrides {
  long long batch = 0, token = 0, head = 0;
};
// Strides of [B, tokens, heads, width], or packed of [tokens, heads, width].
inline AttentionStrides attention_strides(const Tensor& tensor, bool packed) {
  const int first = packed ? 0 : 1;
  return {packed ? 0 : tensor.stride[0], tensor.stride[first], tensor.stride[first + 1]};
}

// A key head serves whole groups of query heads; kUnknown passes.
Status check_heads(int64_t heads, int64_t kv_heads, const char* keys = "k");

}  // namespace lathe
