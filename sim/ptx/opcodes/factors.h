// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds the types of matrix factors, and which accumulators go with them.
#pragma once

#include "sim/ptx/tensor.h"

namespace sim {

// Types that may stand together have one kind.
enum class Kin : uint8_t { none, f16, bf16, tf32, fp8, int8, int4, bit, f64 };
struct Factor {
  Type type = Type::none;
  Element element = Element::none;
  Kin kin = Kin::none;
};
constexpr Factor kFactors[] = {
    {Type::f16, Element::f16, Kin::f16},    {Type::bf16, Element::bf16, Kin::bf16},
    {Type::tf32, Element::tf32, Kin::tf32}, {Type::f64, Element::f64, Kin::f64},
    {Type::e4m3, Element::e4m3, Kin::fp8},  {Type::e5m2, Element::e5m2, Kin::fp8},
    {Type::s8, Element::s8, Kin::int8},     {Type::u8, Element::u8, Kin::int8},
    {Type::s4, Element::s4, Kin::int4},     {Type::u4, Element::u4, Kin::int4},
    {Type::b1, Element::b1, Kin::bit}};

inline Factor factor_of(Type t) {
  for (const Factor& factor : kFactors) {
    if (factor.type == t) return factor;
  }
  return {};
}

// Returns false if the type is no accumulator of these factors.
bool sum_of(Type t, Kin kin, Sum* out);

}  // namespace sim
