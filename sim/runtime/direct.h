// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls of the runtime that are one call of the driver: exported with the types of their
// declaration and handed on argument by argument. Pointers and enumerations differ by name alone.
#pragma once

#include <bit>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "sim/runtime/entry.h"

namespace sim::runtime {

template <typename F>
struct Signature;
template <typename R, typename... P>
struct Signature<R(P...)> {
  template <size_t at>
  using Parameter = std::tuple_element_t<at, std::tuple<P...>>;
  static constexpr size_t kCount = sizeof...(P);
};
template <typename F, size_t at>
using Parameter = typename Signature<F>::template Parameter<at>;

// An argument on its way to the driver, which may give its type another name.
template <typename T>
struct Argument {
  T value;
  template <typename Driver>
  operator Driver() const {
    static_assert(sizeof(Driver) == sizeof(T), "an argument may not change its size");
    if constexpr (std::is_class_v<T>) {
      return std::bit_cast<Driver>(value);
    } else {
      return (Driver)value;  // an enumeration, a pointer or an address
    }
  }
};

template <typename T>
Argument<T> pass(T value) {
  return {value};
}

// The same for a call whose default stream is the thread's own.
template <typename T>
Argument<T> pass_own(T value) {
  if constexpr (std::is_same_v<T, cudaStream_t>) {
    return {own(value)};
  } else {
    return {value};
  }
}

}  // namespace sim::runtime

#define SIM_PARAMETERS_0(name)
#define SIM_PARAMETERS_1(name) sim::runtime::Parameter<decltype(name), 0> a
#define SIM_PARAMETERS_2(name) SIM_PARAMETERS_1(name), sim::runtime::Parameter<decltype(name), 1> b
#define SIM_PARAMETERS_3(name) SIM_PARAMETERS_2(name), sim::runtime::Parameter<decltype(name), 2> c
#define SIM_PARAMETERS_4(name) SIM_PARAMETERS_3(name), sim::runtime::Parameter<decltype(name), 3> d
#define SIM_PARAMETERS_5(name) SIM_PARAMETERS_4(name), sim::runtime::Parameter<decltype(name), 4> e
#define SIM_PARAMETERS_6(name) SIM_PARAMETERS_5(name), sim::runtime::Parameter<decltype(name), 5> f
#define SIM_PARAMETERS_7(name) SIM_PARAMETERS_6(name), sim::runtime::Parameter<decltype(name), 6> g
#define SIM_PARAMETERS_8(name) SIM_PARAMETERS_7(name), sim::runtime::Parameter<decltype(name), 7> h
#define SIM_ARGUMENTS_0(pass)
#define SIM_ARGUMENTS_1(pass) pass(a)
#define SIM_ARGUMENTS_2(pass) SIM_ARGUMENTS_1(pass), pass(b)
#define SIM_ARGUMENTS_3(pass) SIM_ARGUMENTS_2(pass), pass(c)
#define SIM_ARGUMENTS_4(pass) SIM_ARGUMENTS_3(pass), pass(d)
#define SIM_ARGUMENTS_5(pass) SIM_ARGUMENTS_4(pass), pass(e)
#define SIM_ARGUMENTS_6(pass) SIM_ARGUMENTS_5(pass), pass(f)
#define SIM_ARGUMENTS_7(pass) SIM_ARGUMENTS_6(pass), pass(g)
#define SIM_ARGUMENTS_8(pass) SIM_ARGUMENTS_7(pass), pass(h)

// SIM_DIRECT(count, name, call, needs): `name` is `call` with its `count` arguments; `needs` is
// with_context, or with_driver for calls that need no context.
#define SIM_DIRECT(count, name, call, needs)                             \
  SIM_RUNTIME cudaError_t name(SIM_PARAMETERS_##count(name)) {           \
    return sim::runtime::needs([&](const sim::runtime::Driver& driver) { \
      return driver.call(SIM_ARGUMENTS_##count(sim::runtime::pass));     \
    });                                                                  \
  }

// The same, and `name`_ptsz with the thread's own default stream.
#define SIM_DIRECT_TWO(count, name, call, needs)                         \
  SIM_DIRECT(count, name, call, needs)                                   \
  SIM_RUNTIME cudaError_t name##_ptsz(SIM_PARAMETERS_##count(name)) {    \
    return sim::runtime::needs([&](const sim::runtime::Driver& driver) { \
      return driver.call(SIM_ARGUMENTS_##count(sim::runtime::pass_own)); \
    });                                                                  \
  }
