// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A run of a caller's kernels, over a driver table that only writes down: parameters and grids are
// right, and the run allocates nothing.
#include <doctest/doctest.h>

#include "tests/harness/launch_world.h"
#include "tests/ops/own/texts.h"

namespace {

using namespace launches;

const char* const kText = R"text(/* lathe
tensors.x = { in = "bf16", shape = "T D", strided = true }
tensors.bias = { in = "f32", shape = "D", optional = true }
tensors.y = { out = "f32", shape = "T D" }
workspace.w = { dtype = "f32", count = "T * 3" }
workspace.v = { dtype = "u8", count = 5 }
options.eps = { default = 0.5 }
options.n = { default = -7 }
options.word = { default = "a", allowed = "a|b|c" }
[[kernel]]
function = "f"
grid = ["T", "ceil_div(D, 32)", 2]
block = 96
shared = 1024
[[kernel]]
function = "g"
grid = "max(T - 700, 0)"
block = 32
*/
template <class Config> __device__ void f(const Params& p) {}
template <class Config> __device__ void g(const Params& p) {}
)text";

// What the text's Params must be.
struct Expected {
  void *x, *bias, *y, *w, *v;
  long long x_stride[2], T, D, n;
  float eps;
  int word;
};

TEST_CASE("parameters are those of the tensors, and nothing is allocated") {
  const own_texts::Kernel kernel = own_texts::parse(kText);
  World world;
  world.make(test::Builder(own_texts::name_of(kernel).c_str())
                 .tensors({{"x", LATHE_BF16, {-1, 64}}, {"y", LATHE_F32, {-1, 64}}})
                 .set("word", "c")
                 .set("n", "-9000000000"));
  world.fill("T D", {700, 64});
  world.arrays[0].strides = {80, 1};
  world.slots[0] = world.arrays[0].get();
  size_t workspace = 0;
  REQUIRE_MESSAGE(world.run(&workspace) == LATHE_OK, test::error());
  CHECK(workspace == 8448 + 256);  // 700 * 3 * 4 and 5, each to a multiple of 256
  REQUIRE(recorder.count == 1);    // the second has no blocks
  const Launch launch = recorder.launches[0];
  CHECK(launch.config.gridDimX == 700);
  CHECK(launch.config.gridDimY == 2);
  CHECK(launch.config.gridDimZ == 2);
  CHECK(launch.config.blockDimX == 96);
  CHECK(launch.config.sharedMemBytes == 1024);
  const auto p = launch.as<Expected>();
  CHECK(p.x == World::address(0));
  CHECK(p.bias == nullptr);
  CHECK(p.y == World::address(2));
  CHECK(p.w == kWorkspace);
  CHECK(p.v == kWorkspace + 8448);
  CHECK(p.x_stride[0] == 80);
  CHECK(p.x_stride[1] == 1);
  CHECK(p.T == 700);
  CHECK(p.D == 64);
  CHECK(p.n == -9000000000);
  CHECK(p.eps == 0.5f);
  CHECK(p.word == 2);

  world.fill("T D", {703, 64});
  REQUIRE_MESSAGE(world.run(&workspace) == LATHE_OK, test::error());
  REQUIRE(recorder.count == 2);
  CHECK(recorder.launches[1].config.gridDimX == 3);
}

}  // namespace
