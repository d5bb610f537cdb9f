// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// What the operators' tables are written with, and the tables, a file for each family.
#pragma once

#include "ops/schema.h"

namespace lathe {

std::span<const Operator> conv_operators();
std::span<const Operator> attention_operators();
std::span<const Operator> ring_operators();
std::span<const Operator> kda_operators();
std::span<const Operator> sparse_operators();
std::span<const Operator> shard_operators();

namespace entries {

inline constexpr const char* kFloats = "f32|f16|bf16";

// Of the attention families: whole rows, or packed ones.
inline constexpr const char* kHalves = "f16|bf16|f32";
inline constexpr const char* kQueries = "B,Sq,H,D|Tq,H,D";
inline constexpr const char* kKeys = "B,Sk,HK,D|Tk,HK,D";
inline constexpr const char* kValues = "B,Sk,HK,DV|Tk,HK,DV";
inline constexpr const char* kResults = "B,Sq,H,DV|Tq,H,DV";
inline constexpr const char* kRows = "B,H,Sq|H,Tq";
inline constexpr const char* kSavedForward = "saved_forward";

constexpr lathe_operator_tensor in(const char* name, const char* shape, bool optional,
                                   const char* dtypes, const char* sentence) {
  return {name, shape, LATHE_INPUT, optional, dtypes, nullptr, sentence, nullptr};
}
constexpr lathe_operator_tensor out(const char* name, const char* shape, const char* dtypes,
                                    const char* sentence, const char* alias_of = nullptr,
                                    const char* given_if = nullptr) {
  return {name, shape, LATHE_OUTPUT, 1, dtypes, alias_of, sentence, given_if};
}
constexpr lathe_operator_tensor inout(const char* name, const char* shape, const char* dtypes,
                                      const char* sentence) {
  return {name, shape, LATHE_INOUT, 0, dtypes, nullptr, sentence, nullptr};
}
constexpr lathe_operator_option flag(const char* name, const char* sentence) {
  return {name, LATHE_OPTION_INT, "0", "0|1", sentence};
}

}  // namespace entries
}  // namespace lathe
