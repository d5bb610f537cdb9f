// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes one case a case of every family of kernels.
#pragma once

#include <doctest/doctest.h>

#include "tests/harness/family.h"

#define LATHE_EVERY_FAMILY_CASE(name, body) \
  static void body();                       \
  LATHE_CASE_OF(name, "portable", body)     \
  LATHE_CASE_OF(name, "sm90", body)         \
  static void body()
#define LATHE_CASE_OF(name, each, body)     \
  TEST_CASE(name " [" each "]") {           \
    const ::apitest::InFamily chosen(each); \
    body();                                 \
  }

// EVERY_FAMILY_CASE("text") { ... } is a TEST_CASE for the kernels of each family: what one
// implementation of a step must compute, the others must.
#define EVERY_FAMILY_CASE(name) LATHE_EVERY_FAMILY_CASE(name, DOCTEST_ANONYMOUS(lathe_case_))
// The same for one family: what is said of its kernels alone.
#define FAMILY_CASE(each, name) LATHE_ONE_FAMILY_CASE(each, name, DOCTEST_ANONYMOUS(lathe_case_))
#define LATHE_ONE_FAMILY_CASE(each, name, body) \
  static void body();                           \
  LATHE_CASE_OF(name, each, body)               \
  static void body()
