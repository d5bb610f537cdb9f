// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover loading and launching over a table that notes what it is asked.
#include "device/kernel.h"

#include <doctest/doctest.h>

#include "tests/device/fake_table.h"

using namespace lathe;
using namespace lathe::test;

namespace {

using Calls = std::vector<std::string>;

struct Loading {
  std::shared_ptr<const Driver> driver = fake_table();
  std::shared_ptr<const Device> device = *Device::open(driver, 0, "");
  std::string cubin = fake_cubin(), ptx = ".version 8.0";
  KernelSpec spec;

  Loading() {
    spec.kernel = std::string("conv");
    spec.threads = 96;
    spec.smem_bytes = 512;
  }
  Result<std::shared_ptr<const Kernel>> load() {
    return Kernel::load(device, cubin, ptx, std::make_shared<const KernelSpec>(spec));
  }
};

}  // namespace

TEST_CASE("the cubin is loaded, forced in and let go") {
  Loading loading;
  {
    const auto kernel = loading.load();
    REQUIRE(kernel.ok());
    CHECK(fake().calls == Calls{"push", "cubin", "entry", "force", "pop"});
    CHECK(fake().libraries == 1);
    CHECK(fake().dynamic_shared == 0);
    CHECK((*kernel)->spec().threads == 96);
  }
  CHECK(fake().libraries == 0);
}

TEST_CASE("more than 48 KiB of shared memory is asked for") {
  Loading loading;
  loading.spec.smem_bytes = 100000;
  REQUIRE(loading.load().ok());
  CHECK(fake().dynamic_shared == 100000);
}

TEST_CASE("a driver without code for the device gets the PTX") {
  for (const CUresult answer : {CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_INVALID_IMAGE}) {
    Loading loading;
    fake().cubin_answer = answer;
    REQUIRE(loading.load().ok());
    CHECK(fake().calls == Calls{"push", "cubin", "ptx", "entry", "force", "pop"});
  }
  Loading other_machine;
  other_machine.cubin = fake_cubin(62);
  REQUIRE(other_machine.load().ok());
  CHECK(fake().calls == Calls{"push", "ptx", "entry", "force", "pop"});
}

TEST_CASE("failures are told and hold nothing") {
  Loading loading;
  fake().cubin_answer = CUDA_ERROR_OUT_OF_MEMORY;
  auto kernel = loading.load();
  REQUIRE_FALSE(kernel.ok());
  CHECK(kernel.status().code() == Code::cuda);
  CHECK(kernel.status().text().find("(2)") != std::string::npos);

  fake().cubin_answer = CUDA_ERROR_NO_BINARY_FOR_GPU;
  fake().ptx_answer = CUDA_ERROR_INVALID_PTX;
  kernel = loading.load();
  REQUIRE_FALSE(kernel.ok());
  CHECK(kernel.status().text().find("line 7: no such instruction") != std::string::npos);

  loading.ptx.clear();
  kernel = loading.load();
  REQUIRE_FALSE(kernel.ok());
  CHECK(kernel.status().text().find("no PTX") != std::string::npos);
  CHECK(fake().libraries == 0);
  CHECK(fake().current == nullptr);
}

TEST_CASE("a launch passes geometry, parameters and stream; an empty grid passes nothing") {
  Loading loading;
  const auto kernel = loading.load();
  REQUIRE(kernel.ok());
  fake().calls.clear();
  const int params = 4711;
  const auto stream = reinterpret_cast<CUstream>(0x77);
  for (const Grid& empty : {Grid{0, 1, 1}, Grid{1, 0, 1}, Grid{1, 1, 0}})
    CHECK((*kernel)->launch(empty, &params, stream).ok());
  CHECK(fake().calls.empty());

  CHECK((*kernel)->launch(Grid{7, 5, 3}, &params, stream).ok());
  const CUlaunchConfig& launched = fake().launched;
  CHECK(launched.gridDimX == 7);
  CHECK(launched.gridDimY == 5);
  CHECK(launched.gridDimZ == 3);
  CHECK(launched.blockDimX == 96);
  CHECK(launched.blockDimY == 1);
  CHECK(launched.blockDimZ == 1);
  CHECK(launched.sharedMemBytes == 512);
  CHECK(launched.hStream == stream);
  CHECK(launched.numAttrs == 0);
  CHECK(fake().first_parameter == 4711);

  fake().launch_answer = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const Status status = (*kernel)->launch(Grid{1, 1, 1}, &params, stream);
  CHECK(status.code() == Code::cuda);
  CHECK(status.text().find("cuLaunchKernelEx") == 0);
}
