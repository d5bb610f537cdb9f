// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Fills kernel parameters from the tensors of a call. Parameter structs name their fields as the
// tables name their tensors, so one function fills them all.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "ops/tensors.h"

namespace lathe {

// Lists the pointers of a parameter struct that no tensor of an operator's table stands for, as
// members: arrays of the workspace, and tensors of another name. Whoever fills the rest of the
// struct lists them beside it.
template <const auto& kTable, typename Params>
inline constexpr auto kOtherPointers = std::tuple<>();

// Stand for any class and for any pointer, to find out what a struct can be made of.
struct AnyClass {
  template <typename T>
  requires std::is_class_v<T>
  operator T() const;
};
struct AnyPointer {
  template <typename T>
  requires std::is_pointer_v<T>
  operator T() const;
};

// Counts the pointers of a parameter struct, which come first, behind the structs that it holds.
template <typename Params, typename... Known>
consteval int count_pointers() {
  if constexpr (requires { Params{Known()..., AnyPointer()}; }) {
    return 1 + count_pointers<Params, Known..., AnyPointer>();
  } else {
    return 0;
  }
}
template <typename Params, typename... Known>
consteval int pointers_of() {
  if constexpr (requires { Params{Known()..., AnyClass()}; }) {
    return pointers_of<Params, Known..., AnyClass>();
  } else {
    return count_pointers<Params, Known...>();
  }
}

template <typename Member, typename Class>
consteval int count_of(std::type_identity<Member Class::*>) {
  if constexpr (std::is_array_v<Member>) return std::extent_v<Member>;
  return 1;
}
template <typename... Members>
consteval int count_of(std::type_identity<std::tuple<Members...>>) {
  return (0 + ... + count_of(std::type_identity<Members>()));
}
template <const auto& kTable, typename Params>
consteval int other_pointers() {
  using Others = std::remove_const_t<decltype(kOtherPointers<kTable, Params>)>;
  return count_of(std::type_identity<Others>());
}

// Holds the strides of an activation, which every parameter struct has fields for.
struct AttentionStrides {
  long long batch = 0, token = 0, head = 0;
};
// Returns the strides of [B, tokens, heads, width], or if packed of [tokens, heads, width].
inline AttentionStrides attention_strides(const Tensor& tensor, bool packed) {
  const int first = packed ? 0 : 1;
  return {packed ? 0 : tensor.stride[0], tensor.stride[first], tensor.stride[first + 1]};
}

// These lists have X(field). Activations have a pointer, and strides from batch to batch, token to
// token and, if there are heads, head to head; the others have a pointer alone.
// clang-format off
#define LATHE_ACTIVATIONS(X) \
  X(x) X(y) X(residual) X(dx) X(dy) X(q) X(k) X(v) X(g) X(beta) X(q_rope) X(k_rope) X(indices) \
  X(indices_extra) \
  X(o) X(out) X(rounded) X(dout) X(dq) X(dk) X(dv) X(dg) X(dbeta) X(dq_rope) X(dk_rope)
#define LATHE_POINTERS(X) \
  X(weight) X(bias) X(state) X(initial_state) X(final_state) X(dfinal_state) X(dinitial_state) \
  X(A_log) X(dt_bias) X(cu_seqlens) X(cu_seqlens_q) X(cu_seqlens_k) X(alibi_slopes) X(sinks) \
  X(topk_length) X(topk_length_extra) X(k_extra) \
  X(lse) X(dlse) X(block_out) X(block_lse) X(softmax_max) X(softmax_sum) X(dsinks)
// Y(field) lists numbers of a call; plans and shapes name them as the parameter structs do.
// Z(field) lists arrays in the workspace; their offsets are named like the parameters that point to
// them. No pointer and no offset is forgotten: static_asserts count both.
#define LATHE_NUMBERS(Y) \
  Y(sequences) Y(tokens) Y(rows) Y(keys) Y(heads) Y(kv_heads) Y(value_heads) Y(seq_q) Y(seq_k) \
  Y(head_dim) Y(value_dim) Y(rope_dim) Y(key_dim) Y(segments) Y(topk) Y(splits) Y(slices) \
  Y(batch) Y(channels) Y(dq_blocks) Y(dk_blocks) Y(dv_blocks) Y(dsinks_blocks)
#define LATHE_SECTIONS(Z) \
  Z(lse2) Z(sums) Z(dq_sums) Z(dk_parts) Z(dv_parts) Z(dsinks_parts) Z(delta) Z(zeroed) \
  Z(dk_sums) Z(dv_sums) Z(counts) Z(cursor) Z(slots) Z(listed) Z(lengths) Z(ranges) Z(index) \
  Z(summaries) Z(transitions) Z(grad_ends) Z(value_grads) Z(state_grads) Z(rate_sums) Z(bias_sums)
// clang-format on

inline void put_strides(const AttentionStrides& from, long long* batch, long long* token,
                        long long* head) {
  *batch = from.batch, *token = from.token, *head = from.head;
}

// Counts the pointers that fill_tensors fills.
template <const auto& kTable, typename Params>
consteval int filled_pointers() {
  int count = 0;
#define LATHE_COUNT_POINTER(name) \
  if constexpr (requires(Params p) { p.name; }) count += find_row(kTable, #name) >= 0 ? 1 : 0;
  LATHE_ACTIVATIONS(LATHE_COUNT_POINTER)
  LATHE_POINTERS(LATHE_COUNT_POINTER)
#undef LATHE_COUNT_POINTER
  return count;
}

// Fills the fields of `p` that have a name of the operator's table, which is known at compile time.
// A tensor that the problem does not declare has no address and no strides. `packed`: tensors with
// heads have no batch.
template <const auto& kTable, typename Params>
void fill_tensors(const Call& call, bool packed, Params* p) {
  static_assert(
      filled_pointers<kTable, Params>() + other_pointers<kTable, Params>() == pointers_of<Params>(),
      "a pointer of Params has no name of these lists, and kOtherPointers lacks it");
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

// Fills the numbers of `p` that `from` has.
template <typename From, typename Params>
void fill_numbers(const From& from, Params* p) {
#define LATHE_FILL_NUMBER(name)                                                     \
  if constexpr (requires { p->name = static_cast<int>(from.name); }) {              \
    p->name = static_cast<std::remove_reference_t<decltype((p->name))>>(from.name); \
  }
  LATHE_NUMBERS(LATHE_FILL_NUMBER)
#undef LATHE_FILL_NUMBER
}

// Says how many numbers of a struct of offsets no pointer of LATHE_SECTIONS is named after: the
// total, and what its family fills by itself.
template <typename Offsets>
inline constexpr int kOtherOffsets = 1;

// Stands for any number.
struct AnyNumber {
  template <typename T>
  requires std::is_arithmetic_v<T>
  operator T() const;
};
template <typename Offsets, typename... Known>
consteval int numbers_of() {
  if constexpr (requires { Offsets{Known()..., AnyNumber()}; }) {
    return numbers_of<Offsets, Known..., AnyNumber>();
  } else {
    return sizeof...(Known);
  }
}
template <typename Offsets>
consteval int named_sections() {
  int count = 0;
#define LATHE_COUNT_SECTION(name) \
  if constexpr (requires(Offsets at) { at.name; }) ++count;
  LATHE_SECTIONS(LATHE_COUNT_SECTION)
#undef LATHE_COUNT_SECTION
  return count;
}

// Fills the pointers of `p` to arrays of the workspace whose offsets `at` has.
template <typename Offsets, typename Params>
void fill_sections(const Offsets& at, char* workspace, Params* p) {
  static_assert(named_sections<Offsets>() + kOtherOffsets<Offsets> == numbers_of<Offsets>(),
                "an offset has no name in LATHE_SECTIONS, and kOtherOffsets does not count it");
#define LATHE_FILL_SECTION(name) \
  if constexpr (requires { p->name = workspace + at.name; }) p->name = workspace + at.name;
  LATHE_SECTIONS(LATHE_FILL_SECTION)
#undef LATHE_FILL_SECTION
}

}  // namespace lathe
