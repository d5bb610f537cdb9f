// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tables lead from a value of an instruction's form to the handler that executes it. They are
// searched while a module is decoded. Like lanes.h, this file lives inside the namespace of an
// instruction set and uses no standard template.
#pragma once

#include "sim/exec/lanes.h"

namespace sim::SIM_ISA {
namespace {

template <class Key>
struct HandlerRow {
  Key key;
  Handler handler;
};

// Returns the handler of `key`; null if no row has it.
template <class Key, int N>
Handler find_handler(Key key, const HandlerRow<Key> (&rows)[N]) {
  for (const HandlerRow<Key>& row : rows) {
    if (row.key == key) return row.handler;
  }
  return nullptr;
}

template <class Key>
struct ResolverRow {
  Key key;
  Resolver* resolve;
};

// Does the same where more of the form than `key` decides.
template <class Key, int N>
Handler resolve_by(Key key, const Form& f, const ResolverRow<Key> (&rows)[N]) {
  for (const ResolverRow<Key>& row : rows) {
    if (row.key == key) return row.resolve(f);
  }
  return nullptr;
}

template <bool First, class A, class B>
auto either() {
  if constexpr (First)
    return A();
  else
    return B();
}
// An integer of `Bytes` bytes.
template <int Bytes, bool Signed>
auto integer() {
  if constexpr (Bytes == 1)
    return either<Signed, int8_t, uint8_t>();
  else if constexpr (Bytes == 2)
    return either<Signed, int16_t, uint16_t>();
  else if constexpr (Bytes == 4)
    return either<Signed, int32_t, uint32_t>();
  else if constexpr (Bytes == 8)
    return either<Signed, int64_t, uint64_t>();
  else
    return either<Signed, __int128, unsigned __int128>();
}
template <class T>
constexpr bool kSigned = static_cast<T>(-1) < static_cast<T>(0);
// The unsigned integer of T's size, and the integer of twice the size with T's sign.
template <class T>
using U = decltype(integer<sizeof(T), false>());
template <class T>
using Wide = decltype(integer<2 * sizeof(T), kSigned<T>>());

// Returns make(T()) for the C++ integer T that holds a value of type t; null or 0 for other types.
// Types of bits count as unsigned.
template <class Make>
auto with_integer(Type t, Make make) -> decltype(make(uint32_t())) {
  if (!is_integer(t)) return {};
  const bool sign = is_signed(t);
  switch (type_bytes(t)) {
    case 1:
      return sign ? make(int8_t()) : make(uint8_t());
    case 2:
      return sign ? make(int16_t()) : make(uint16_t());
    case 4:
      return sign ? make(int32_t()) : make(uint32_t());
    case 8:
      return sign ? make(int64_t()) : make(uint64_t());
    default:
      return {};
  }
}

}  // namespace
}  // namespace sim::SIM_ISA
