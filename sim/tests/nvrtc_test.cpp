// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// CUDA C++ through NVRTC and the simulator, against the same computation on the host.
#include "sim/tests/nvrtc.h"

#include <cmath>

#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

bool compiled(Device* device, const std::string& source, const std::string& arch) {
  static Nvrtc nvrtc;
  if (!nvrtc.available()) {
    MESSAGE("skipped: libnvrtc.so cannot be opened");
    return false;
  }
  std::string log;
  const std::string ptx = nvrtc.compile(source, arch, &log);
  INFO(log);
  REQUIRE(!ptx.empty());
  device->load(ptx);
  return true;
}

}  // namespace

TEST_CASE("vector addition") {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    CAPTURE(arch);
    Device device(arch);
    if (!compiled(&device, R"(
      extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i];
      })",
                  arch)) {
      return;
    }
    const int n = 1000;
    std::vector<float> a(n), b(n);
    for (int i = 0; i < n; ++i) {
      a[i] = 0.1f * static_cast<float>(i);
      b[i] = 1.0f / static_cast<float>(i + 1);
    }
    const uint64_t c = device.buffer(n * 4);
    const Outcome o = device.run("add", 8, 128, device.upload(a), device.upload(b), c, n);
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
    const auto result = device.download<float>(c, n);
    for (int i = 0; i < n; ++i) CHECK(result[i] == a[i] + b[i]);
    CHECK(o.counters.global_load.bytes == 8u * n);
    CHECK(o.counters.global_load.sectors == o.counters.global_load.minimum_sectors);
    CHECK(o.counters.unique_store_sectors == n * 4 / 32);
  }
}
