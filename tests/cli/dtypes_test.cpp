// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover elements as doubles and back: every 16-bit pattern, and the roundings between
// them.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "api/cli/inputs/tensors.h"

using namespace lathe::cli;

namespace {

uint16_t bits_of(const HostTensor& tensor) {
  uint16_t bits = 0;
  std::memcpy(&bits, tensor.data.data(), 2);
  return bits;
}

HostTensor with_bits(lathe_dtype dtype, uint16_t bits) {
  HostTensor tensor = empty_tensor({dtype, {1}});
  std::memcpy(tensor.data.data(), &bits, 2);
  return tensor;
}

}  // namespace

TEST_CASE("every 16-bit value survives the way to double and back") {
  for (const lathe_dtype dtype : {LATHE_F16, LATHE_BF16}) {
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      HostTensor tensor = with_bits(dtype, static_cast<uint16_t>(bits));
      const double value = element(tensor, 0);
      set_element(&tensor, 0, value);
      if (std::isnan(value)) {
        CHECK(std::isnan(element(tensor, 0)));
      } else {
        REQUIRE(bits_of(tensor) == bits);
      }
    }
  }
}

TEST_CASE("values between two neighbours go to the nearest, ties to the even one") {
  for (const lathe_dtype dtype : {LATHE_F16, LATHE_BF16}) {
    const unsigned infinity = dtype == LATHE_F16 ? 0x7c00 : 0x7f80;
    for (unsigned low = 0; low + 1 < infinity; ++low) {
      const double a = element(with_bits(dtype, static_cast<uint16_t>(low)), 0);
      const double b = element(with_bits(dtype, static_cast<uint16_t>(low + 1)), 0);
      HostTensor tensor = empty_tensor({dtype, {1}});
      set_element(&tensor, 0, (a + b) / 2);
      REQUIRE(bits_of(tensor) == (low % 2 == 0 ? low : low + 1));
      set_element(&tensor, 0, a + (b - a) * 0.25);
      REQUIRE(bits_of(tensor) == low);
      set_element(&tensor, 0, -(a + (b - a) * 0.75));
      REQUIRE(bits_of(tensor) == (0x8000 | (low + 1)));
    }
  }
}

TEST_CASE("what is too large becomes infinite") {
  HostTensor tensor = empty_tensor({LATHE_F16, {1}});
  set_element(&tensor, 0, 65519);
  CHECK(element(tensor, 0) == 65504);
  set_element(&tensor, 0, 65520);
  CHECK(std::isinf(element(tensor, 0)));
  set_element(&tensor, 0, -1e30);
  CHECK(element(tensor, 0) == -INFINITY);
}
