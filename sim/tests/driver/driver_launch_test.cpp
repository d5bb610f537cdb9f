// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover launches: results, every refused configuration, faults that stick until a
// reset, the report.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

const std::string kReport = std::string(SIM_LIBRARY_DIR) + "/driver_launch_test.jsonl";
const std::string kCounters = std::string(SIM_LIBRARY_DIR) + "/driver_launch_counters.jsonl";
const int kReportSet = [] {
  std::remove(kReport.c_str());
  std::remove(kCounters.c_str());
  setenv("LATHE_SIM_QUIET", "1", 1);
  return setenv("LATHE_SIM_REPORT", kReport.c_str(), 1) +
         setenv("LATHE_SIM_COUNTERS", kCounters.c_str(), 1);
}();

// The kernels, loaded, with the operands of `add`.
struct Kernels {
  CUmodule module = nullptr;
  CUfunction add = nullptr, reverse = nullptr;
  CUdeviceptr a = 0, b = 0, c = 0;
  int count = 1000;
  Kernels() {
    REQUIRE(cuda().module_load_data(&module, kernels().c_str()) == CUDA_SUCCESS);
    REQUIRE(cuda().module_get_function(&add, module, "add") == CUDA_SUCCESS);
    REQUIRE(cuda().module_get_function(&reverse, module, "reverse") == CUDA_SUCCESS);
    std::vector<float> ones(1000, 1.0f), ramp(1000);
    for (size_t at = 0; at < 1000; ++at) ramp[at] = static_cast<float>(at);
    a = upload(ramp);
    b = upload(ones);
    c = allocate(4000);
  }
  CUresult launch(unsigned grid = 4, unsigned block = 256, CUstream stream = nullptr) {
    void* params[] = {&a, &b, &c, &count};
    return cuda().launch_kernel(add, grid, 1, 1, block, 1, 1, 0, stream, params, nullptr);
  }
};

std::vector<float> expected() {
  std::vector<float> sums(1000);
  for (size_t at = 0; at < 1000; ++at) sums[at] = static_cast<float>(at + 1);
  return sums;
}

std::string report(const std::string& path = kReport) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("vector add, parameters by pointers and as a buffer") {
  const Primary primary;
  Kernels it;
  CHECK(it.launch() == CUDA_SUCCESS);
  CHECK(download<float>(it.c, 1000) == expected());
  CHECK(cuda().memset_d32(it.c, 0, 1000) == CUDA_SUCCESS);
  struct {
    CUdeviceptr a, b, c;
    int count;
  } packed = {it.a, it.b, it.c, it.count};
  size_t bytes = 28;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  CHECK(cuda().launch_kernel(it.add, 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra) ==
        CUDA_SUCCESS);
  CHECK(download<float>(it.c, 1000) == expected());
  bytes = 27;
  CHECK(cuda().launch_kernel(it.add, 4, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra) ==
        CUDA_ERROR_INVALID_VALUE);
  const std::string counted = report(kCounters);
  CHECK(counted.find("{\"kernel\":\"add\",\"module\":") == 0);
  CHECK(counted.find(",\"grid\":[4,1,1],\"block\":[256,1,1]") != std::string::npos);
  CHECK_FALSE(std::ifstream(kReport).good());  // nothing was found
}

TEST_CASE("parameters are copied at the call") {
  const Primary primary;
  Kernels it;
  CUstream stream = nullptr;
  REQUIRE(cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(it.launch(4, 256, stream) == CUDA_SUCCESS);
  it.count = 0;
  const CUdeviceptr result = it.c;
  it.c = 0;
  CHECK(cuda().stream_synchronize(stream) == CUDA_SUCCESS);
  CHECK(download<float>(result, 1000) == expected());
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
}

TEST_CASE("configurations that are refused") {
  const Primary primary;
  Kernels it;
  CHECK(it.launch(0, 256) == CUDA_ERROR_INVALID_VALUE);
  CHECK(it.launch(4, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(it.launch(4, 1025) == CUDA_ERROR_INVALID_VALUE);
  CHECK(it.launch(4, 256, reinterpret_cast<CUstream>(0x77)) == CUDA_ERROR_INVALID_HANDLE);
  void* params[] = {&it.a, &it.b, &it.c, &it.count};
  void* extra[] = {CU_LAUNCH_PARAM_END};
  const auto raw = [&](CUfunction f, unsigned z, unsigned shared, void** each, void** packed) {
    return cuda().launch_kernel(f, 1, 1, 1, 1, 1, z, shared, nullptr, each, packed);
  };
  CHECK(raw(nullptr, 1, 0, params, nullptr) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(raw(it.add, 65, 0, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(raw(it.add, 1, 49153, params, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(raw(it.add, 1, 0, nullptr, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(raw(it.add, 1, 0, params, extra) == CUDA_ERROR_INVALID_VALUE);

  CUlaunchAttribute attribute = {};
  CUlaunchConfig config = {};
  config.gridDimX = 6;
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {4, 1, 1};  // does not divide 6
  CHECK(cuda().launch_kernel_ex(&config, it.add, params, nullptr) ==
        CUDA_ERROR_INVALID_CLUSTER_SIZE);
  config.gridDimX = 16;
  attribute.value.clusterDim = {16, 1, 1};  // needs the non-portable attribute
  CHECK(cuda().launch_kernel_ex(&config, it.add, params, nullptr) ==
        CUDA_ERROR_INVALID_CLUSTER_SIZE);
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  config.gridDimX = 100000;
  CHECK(cuda().launch_kernel_ex(&config, it.add, params, nullptr) ==
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  CHECK(cuda().ctx_synchronize() == CUDA_SUCCESS);  // nothing ran, nothing broke
}

TEST_CASE("a kernel is captured and replayed") {
  const Primary primary;
  Kernels it;
  CUstream stream = nullptr;
  REQUIRE(cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuda().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(it.launch(4, 256, stream) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  REQUIRE(cuda().stream_end_capture(stream, &graph) == CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  REQUIRE(cuda().graph_instantiate_with_flags(&exec, graph, 0) == CUDA_SUCCESS);
  for (int launch = 0; launch < 2; ++launch) {
    CHECK(cuda().memset_d32(it.c, 0, 1000) == CUDA_SUCCESS);
    CHECK(cuda().graph_launch(exec, nullptr) == CUDA_SUCCESS);
    CHECK(download<float>(it.c, 1000) == expected());
  }
  CHECK(cuda().graph_exec_destroy(exec) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
}

TEST_CASE("a fault surfaces at the next wait, kills the context, and a reset revives it") {
  const Primary primary;
  Kernels it;
  it.count = 1024;  // past the end of all three
  CHECK(it.launch() == CUDA_SUCCESS);
  CHECK(cuda().ctx_synchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr memory = 0;
  CHECK(cuda().mem_alloc(&memory, 16) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(cuda().stream_synchronize(nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(it.launch() == CUDA_ERROR_ILLEGAL_ADDRESS);
  const std::string text = report();
  CHECK(text.find("{\"check\":\"memcheck\",\"kind\":\"out_of_bounds\"") != std::string::npos);
  CHECK(text.find("\"kernel\":\"add\"") != std::string::npos);
  CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
  Kernels again;
  CHECK(again.launch() == CUDA_SUCCESS);
  CHECK(download<float>(again.c, 1000) == expected());
}

TEST_CASE("a use after free, and a fault in one stream while another waits for it") {
  const Primary primary;
  Kernels it;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  REQUIRE(cuda().stream_create(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuda().event_create(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(it.c) == CUDA_SUCCESS);
  CHECK(it.launch() == CUDA_SUCCESS);
  CHECK(cuda().event_record(event, nullptr) == CUDA_SUCCESS);
  CHECK(cuda().stream_wait_event(stream, event, 0) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(report().find("freed") != std::string::npos);
  CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
}

TEST_CASE("device memory that is never freed is told when the context goes") {
  CUdeviceptr leaked = 0;
  {
    const Primary primary;
    leaked = allocate(12345);
  }
  std::stringstream address;
  address << std::hex << leaked;
  const std::string text = report();
  const size_t line = text.find("{\"check\":\"memcheck\",\"kind\":\"leak\",\"kernel\":\"\"");
  REQUIRE(line != std::string::npos);
  CHECK(text.find("\"address\":\"0x" + address.str() + "\",\"bytes\":12345", line) !=
        std::string::npos);
}
