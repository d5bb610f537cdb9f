// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/workspace.h"

#include <doctest/doctest.h>

#include <cstdint>

namespace {

using lathe::WorkspaceLayout;

TEST_CASE("workspace: sections lie one after another at multiples of 256 bytes") {
  WorkspaceLayout layout;
  int64_t bytes = 0;
  CHECK(layout.add({3, 5}, &bytes) == 0);
  CHECK(bytes == 15);
  CHECK(layout.add({256}) == 256);
  CHECK(layout.add({7, 0, 9}, &bytes) == 512);  // no bytes, no room
  CHECK(bytes == 0);
  CHECK(layout.add({1}) == 512);
  CHECK(layout.add({257}) == 768);
  CHECK(layout.total() == 1280);
  CHECK(layout.status().ok());
}

TEST_CASE("workspace: a sum or a product beyond 2^63 is remembered") {
  for (const int64_t most : {INT64_MAX, INT64_MAX - 254}) {
    WorkspaceLayout layout;
    layout.add({most});
    CHECK_FALSE(layout.fits());
    CHECK(layout.add({1}) == layout.total());
    CHECK_FALSE(layout.fits());
    CHECK(layout.status().code() == lathe::Code::invalid_argument);
    CHECK(layout.status().text() == "the workspace passes 2^63 bytes");
  }
  WorkspaceLayout product;
  product.add({int64_t{1} << 40, int64_t{1} << 40});
  product.add({8});
  CHECK_FALSE(product.fits());
  WorkspaceLayout sum;
  for (int i = 0; i < 2; ++i) sum.add({int64_t{1} << 62});
  CHECK_FALSE(sum.fits());
  WorkspaceLayout fits;
  fits.add({INT64_MAX - 255});
  CHECK(fits.fits());
}

}  // namespace
