// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kernel parameters from the tensors of a call. Parameter structs name their fields as the tables
// name their tensors, so one function fills them all.
#pragma once

#include "ops/heads.h"

namespace lathe {

// X(field): activations have a pointer, and strides from batch to batch, token to token and, where
// there are heads, head to head; the others have a pointer alone.
// clang-format off
#define LATHE_ACTIVATIONS(X) \
  X(x) X(y) X(residual) X(dx) X(dy) X(q) X(k) X(v) X(g) X(beta) X(q_rope) X(k_rope) X(indices) \
  X(o) X(out) X(rounded) X(dout) X(dq) X(dk) X(dv) X(dg) X(dbeta) X(dq_rope) X(dk_rope)
#define LATHE_POINTERS(X) \
  X(weight) X(bias) X(state) X(initial_state) X(final_state) X(dfinal_state) X(dinitial_state) \
  X(A_log) X(dt_bias) X(cu_seqlens) X(cu_seqlens_q) X(cu_seqlens_k) X(alibi_slopes) X(sinks) \
  X(lse) X(dlse) X(block_out) X(block_lse) X(softmax_max) X(softmax_sum) X(dsinks)
// clang-format on

inline void put_strides(const AttentionStrides& from, long long* batch, long long* token,
                        long long* head) {
  *batch = from.batch, *token = from.token, *head = from.head;
}

// Fills the fields of `p` that have a name of the operator's table, which is known at compile time.
// A tensor that the problem does not declare has no address and no strides. `packed`: those with
// heads have no batch.
template <const auto& kTable, typename Params>
void fill_tensors(const Call& call, bool packed, Params* p) {
#define LATHE_FILL_POINTER(name)                                            \
  if constexpr (constexpr int kRow = find_row(kTable, #name); kRow >= 0) {  \
    if constexpr (requires { p->name; }) p->name = call.tensors[kRow].data; \
  }
#define LATHE_FILL_STRIDES(name)                                                            \
  if constexpr (constexpr int kRow = find_row(kTable, #name); kRow >= 0) {                  \
    [[maybe_unused]] const Tensor& tensor = call.tensors[kRow];                             \
    if constexpr (requires { p->name##_batch_stride, p->name##_head_stride; }) {            \
      put_strides(attention_strides(tensor, packed), &p->name##_batch_stride,               \
                  &p->name##_token_stride, &p->name##_head_stride);                         \
    } else if constexpr (requires { p->name##_batch_stride, p->name##_token_stride; }) {    \
      p->name##_batch_stride = tensor.stride[0], p->name##_token_stride = tensor.stride[1]; \
    }                                                                                       \
  }
  LATHE_ACTIVATIONS(LATHE_FILL_POINTER)
  LATHE_ACTIVATIONS(LATHE_FILL_STRIDES)
  LATHE_POINTERS(LATHE_FILL_POINTER)
#undef LATHE_FILL_POINTER
#undef LATHE_FILL_STRIDES
}

}  // namespace lathe
