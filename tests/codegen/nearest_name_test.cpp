// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover codegen/base/nearest_name.h.
#include "codegen/base/nearest_name.h"

#include <doctest/doctest.h>

#include <string>

namespace {

constexpr std::string_view kNames[] = {"kda", "kda_recurrent", "causal_conv1d", "q", "k"};

TEST_CASE("a slip of the keyboard finds the name that was meant") {
  CHECK(lathe::nearest_name("kdaa", kNames) == "kda");
  CHECK(lathe::nearest_name("kda_recurent", kNames) == "kda_recurrent");
  CHECK(lathe::nearest_name("causal_conv2d", kNames) == "causal_conv1d");
  CHECK(lathe::nearest_name("casual_conv1d", kNames) == "causal_conv1d");
}

TEST_CASE("a name that resembles none finds none") {
  CHECK(lathe::nearest_name("flash_attention", kNames).empty());
  CHECK(lathe::nearest_name("x", kNames).empty());  // every letter would be another
  CHECK(lathe::nearest_name("", kNames).empty());
  CHECK(lathe::nearest_name("kda", {}).empty());
  CHECK(lathe::nearest_name(std::string(100000, 'k'), kNames).empty());
}

TEST_CASE("of two names that are equally near the first is taken") {
  constexpr std::string_view kTwins[] = {"dk", "dv"};
  CHECK(lathe::nearest_name("dq", kTwins) == "dk");
}

TEST_CASE("the words for a message") {
  CHECK(lathe::did_you_mean("kdaa", kNames) == "; did you mean 'kda'?");
  CHECK(lathe::did_you_mean("zzz", kNames).empty());
}

}  // namespace
