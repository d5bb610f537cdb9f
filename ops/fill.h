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

// For each field of parameter structs the number of the tensor of that name in one operator's
// table; -1: the operator has no such tensor.
struct TensorFields {
#define LATHE_FIELD(name) int name = -1;
  LATHE_ACTIVATIONS(LATHE_FIELD)
  LATHE_POINTERS(LATHE_FIELD)
#undef LATHE_FIELD

  // Looks names up: once for an operator, not at every launch.
  static TensorFields of(const char* op);
};

inline void put_strides(const AttentionStrides& from, long long* batch, long long* token,
                        long long* head) {
  *batch = from.batch, *token = from.token, *head = from.head;
}

// Fills those fields of `p` that `fields` has a tensor for. A tensor that the problem does not
// declare has no address and no strides. `packed`: those with heads have no batch.
template <typename Params>
void fill_tensors(const TensorFields& fields, const Call& call, bool packed, Params* p) {
#define LATHE_FILL_POINTER(name)       \
  if constexpr (requires { p->name; }) \
    if (fields.name >= 0) p->name = call.tensors[fields.name].data;
#define LATHE_FILL_STRIDES(name)                                                              \
  if constexpr (requires { p->name##_batch_stride, p->name##_token_stride; }) {               \
    if (fields.name >= 0) {                                                                   \
      const Tensor& tensor = call.tensors[fields.name];                                       \
      if constexpr (requires { p->name##_head_stride; }) {                                    \
        put_strides(attention_strides(tensor, packed), &p->name##_batch_stride,               \
                    &p->name##_token_stride, &p->name##_head_stride);                         \
      } else {                                                                                \
        p->name##_batch_stride = tensor.stride[0], p->name##_token_stride = tensor.stride[1]; \
      }                                                                                       \
    }                                                                                         \
  }
  LATHE_ACTIVATIONS(LATHE_FILL_POINTER)
  LATHE_ACTIVATIONS(LATHE_FILL_STRIDES)
  LATHE_POINTERS(LATHE_FILL_POINTER)
#undef LATHE_FILL_POINTER
#undef LATHE_FILL_STRIDES
}

}  // namespace lathe
