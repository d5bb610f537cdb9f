// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover choosing and opening the driver library, and what a device says of itself.
#include "device/driver.h"

#include <doctest/doctest.h>

#include "tests/cache/support.h"
#include "tests/device/fake_table.h"

using namespace lathe;
using namespace lathe::test;

namespace {

bool says(const Status& status, const std::string& part) {
  return status.text().find(part) != std::string::npos;
}

}  // namespace

// The order of these cases matters: a library that opened stays open for the process.
TEST_CASE("without a GPU cuda is refused with the remedy") {
  const auto driver = open_driver(DeviceChoice::cuda);
  if (driver.ok()) {
    MESSAGE("skipped: this machine has a driver");
    return;
  }
  CHECK(driver.status().code() == Code::no_device);
  CHECK(says(driver.status(), "libcuda.so.1 was not found; "));
  CHECK(says(driver.status(), "LATHE_DEVICE=sim"));
}

TEST_CASE("a simulator that is not there is named with its folder") {
  const TemporaryDirectory place;
  const Environment folder("LATHE_SIM_DIR", place.path());
  const auto driver = open_driver(DeviceChoice::sim);
  REQUIRE_FALSE(driver.ok());
  CHECK(driver.status().code() == Code::no_device);
  CHECK(says(driver.status(), place / "libcuda.so.1"));
  CHECK(says(driver.status(), "LATHE_SIM_DIR"));
}

TEST_CASE("a missing entry point and a failing cuInit are named") {
  const Environment folder("LATHE_SIM_DIR", LATHE_FAKE_DRIVER_DIR);
  {
    const Environment missing("LATHE_FAKE_MISSING", "cuLaunchKernelEx");
    const auto driver = open_driver(DeviceChoice::sim);
    REQUIRE_FALSE(driver.ok());
    CHECK(driver.status().code() == Code::no_device);
    CHECK(says(driver.status(), "cuLaunchKernelEx"));
  }
  for (const char* answer : {"34", "100", "999"}) {
    const Environment init("LATHE_FAKE_CUINIT", answer);
    const auto driver = open_driver(DeviceChoice::sim);
    REQUIRE_FALSE(driver.ok());
    CHECK(driver.status().code() == Code::no_device);
    CHECK(says(driver.status(), LATHE_FAKE_DRIVER_DIR));
    CHECK(says(driver.status(), std::string(answer) == "34" ? "stub" : answer));
  }
}

TEST_CASE("a good library is opened once and its table is full") {
  const Environment folder("LATHE_SIM_DIR", LATHE_FAKE_DRIVER_DIR);
  const auto driver = open_driver(DeviceChoice::sim);
  REQUIRE(driver.ok());
  CHECK((*driver)->version == 12090);
  CHECK((*driver)->path.find(LATHE_FAKE_DRIVER_DIR) != std::string::npos);
#define LATHE_CHECK_MEMBER(name) CHECK(((*driver)->name ? #name : "missing") == std::string(#name));
  LATHE_DRIVER_FUNCTIONS(LATHE_CHECK_MEMBER)
#undef LATHE_CHECK_MEMBER
  CHECK(open_driver(DeviceChoice::sim)->get() == driver->get());

  // The other choice must not be answered with the library that is open under the same name.
  const auto real = open_driver(DeviceChoice::cuda);
  if (real.ok()) CHECK((*real)->path != (*driver)->path);
}

TEST_CASE("check names call, error and number") {
  const auto driver = fake_table();
  CHECK(check(*driver, CUDA_SUCCESS, "cuInit").ok());
  const Status status = check(*driver, CUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamSynchronize");
  CHECK(status.code() == Code::cuda);
  CHECK(status.text() == "cuStreamSynchronize: CUDA_ERROR_FAKE (700): a made-up error");
}

TEST_CASE("a device holds its primary context and tells its facts") {
  const auto driver = fake_table();
  {
    const auto device = Device::open(driver, 1, "");
    REQUIRE(device.ok());
    CHECK(fake().retained == 1);
    CHECK((*device)->name() == "Fake 9000");
    CHECK((*device)->ordinal() == 1);
    const DeviceFacts& facts = (*device)->facts();
    CHECK(facts.arch == "sm_90a");
    CHECK(facts.multiprocessors == 1016);
    CHECK(facts.shared_bytes_per_block == 1097);
    CHECK(facts.shared_bytes_per_multiprocessor == 1081);
    CHECK(facts.registers_per_multiprocessor == 1082);
    CHECK(facts.l2_bytes == 1038);
    CHECK(facts.memory_bytes_per_second > 1e11);
    CHECK((*Device::open(driver, 0, "sm_90"))->facts().arch == "sm_90");
  }
  CHECK(fake().retained == 0);
}

TEST_CASE("an ordinal or a capability that is not there is refused and nothing is held") {
  const auto driver = fake_table();
  for (const int ordinal : {-1, 2}) {
    const auto device = Device::open(driver, ordinal, "");
    REQUIRE_FALSE(device.ok());
    CHECK(device.status().code() == Code::no_device);
    CHECK(says(device.status(), std::to_string(ordinal)));
  }
  fake().major = 3;
  CHECK_FALSE(Device::open(driver, 0, "").ok());
  CHECK(fake().retained == 0);
}

TEST_CASE("a scope pushes only where it must") {
  const auto driver = fake_table();
  const auto device = Device::open(driver, 0, "");
  REQUIRE(device.ok());
  {
    const Device::Scope outer(**device);
    CHECK(outer.status().ok());
    const Device::Scope inner(**device);
    CHECK(inner.status().ok());
  }
  CHECK(fake().calls == std::vector<std::string>{"push", "pop"});
}
