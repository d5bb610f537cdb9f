// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The runtime's calls for work in streams, where they are more than one call of the driver:
// launches, default streams, graphs, callbacks.
#include <cuda.h>

#include "sim/tests/runtime/runtime_client.h"
#include "sim/tests/runtime/runtime_texts.h"

using namespace sim::tests;

namespace {

const Runtime& rt() { return cudart(13); }
char add_here, total_here;

}  // namespace

TEST_CASE("a launch without a configuration, and one that is impossible") {
  const std::vector<uint64_t> image = fat_binary_of(adding_text());
  Registered code(rt(), image.data());
  code.kernel(&add_here, "add");
  dim3 grid = {}, block = {};
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  CHECK(RT(rt(), __cudaPopCallConfiguration)(&grid, &block, &shared_bytes, &stream) ==
        cudaErrorMissingConfiguration);
  int* words = allocate_on_device<int>(rt(), 1);
  int n = 1, by = 1;
  void* arguments[] = {&words, &n, &by};
  struct Case {
    dim3 grid, block;
    size_t shared_bytes;
    cudaError_t error;
  };
  for (const Case& each : {Case{{0, 1, 1}, {32, 1, 1}, 0, cudaErrorInvalidConfiguration},
                           Case{{1, 65536, 1}, {32, 1, 1}, 0, cudaErrorInvalidConfiguration},
                           Case{{1, 1, 1}, {1025, 1, 1}, 0, cudaErrorInvalidConfiguration},
                           Case{{1, 1, 1}, {1, 1, 65}, 0, cudaErrorInvalidConfiguration},
                           Case{{1, 1, 1}, {32, 33, 1}, 0, cudaErrorInvalidConfiguration},
                           Case{{1, 1, 1}, {32, 1, 1}, 49153, cudaErrorInvalidValue},
                           Case{{1, 1, 1}, {32, 1, 1}, 1ull << 32, cudaErrorInvalidValue},
                           Case{{1, 1, 1}, {32, 32, 1}, 49152, cudaSuccess}}) {
    CHECK(RT(rt(), cudaLaunchKernel)(&add_here, each.grid, each.block, arguments, each.shared_bytes,
                                     nullptr) == each.error);
    CHECK(RT(rt(), cudaGetLastError)() == each.error);
  }
  CHECK(RT(rt(), cudaFree)(words) == cudaSuccess);
}

TEST_CASE("the default stream is the legacy one, or the thread's own") {
  constexpr auto kThreadLocal = static_cast<cudaStreamCaptureMode>(1);
  CHECK(RT(rt(), cudaStreamBeginCapture)(nullptr, kThreadLocal) ==
        cudaErrorStreamCaptureUnsupported);
  CHECK(RT(rt(), cudaGetLastError)() == cudaErrorStreamCaptureUnsupported);
  using Begin = decltype(cudaStreamBeginCapture);
  using End = decltype(cudaStreamEndCapture);
  using CopyAsync = decltype(cudaMemcpyAsync);
  using Copy = decltype(cudaMemcpy);
  int* there = allocate_on_device<int>(rt(), 1);
  int* pinned = nullptr;
  REQUIRE(RT(rt(), cudaMallocHost)(reinterpret_cast<void**>(&pinned), sizeof(int)) == cudaSuccess);
  *pinned = 5;
  REQUIRE((*rt().call<Begin>("cudaStreamBeginCapture_ptsz"))(nullptr, kThreadLocal) == cudaSuccess);
  CHECK((*rt().call<CopyAsync>("cudaMemcpyAsync_ptsz"))(
            there, pinned, sizeof(int), cudaMemcpyHostToDevice, nullptr) == cudaSuccess);
  cudaGraph_t graph = nullptr;
  REQUIRE((*rt().call<End>("cudaStreamEndCapture_ptsz"))(nullptr, &graph) == cudaSuccess);
  size_t nodes = 0;
  CHECK(RT(rt(), cudaGraphGetNodes)(graph, nullptr, &nodes) == cudaSuccess);
  CHECK(nodes == 1);
  cudaGraphExec_t exec = nullptr;
  REQUIRE(RT(rt(), cudaGraphInstantiate)(&exec, graph, 0) == cudaSuccess);
  using Launch = decltype(cudaGraphLaunch);
  CHECK((*rt().call<Launch>("cudaGraphLaunch_ptsz"))(exec, nullptr) == cudaSuccess);
  int back = 0;
  CHECK((*rt().call<Copy>("cudaMemcpy_ptds"))(&back, there, sizeof back, cudaMemcpyDeviceToHost) ==
        cudaSuccess);
  CHECK(back == 5);
  CHECK(RT(rt(), cudaGraphExecDestroy)(exec) == cudaSuccess);
  CHECK(RT(rt(), cudaGraphDestroy)(graph) == cudaSuccess);
  CHECK(RT(rt(), cudaFree)(there) == cudaSuccess);
  CHECK(RT(rt(), cudaFreeHost)(pinned) == cudaSuccess);
}

TEST_CASE("a graph made by hand: fill, kernel, copies to and from symbols") {
  const std::vector<uint64_t> image = fat_binary_of(adding_text());
  Registered code(rt(), image.data());
  code.kernel(&add_here, "add");
  code.variable(&total_here, "total", 4);
  int* words = allocate_on_device<int>(rt(), 8);
  int n = 8, by = 3, start = 100, total = 0;
  std::vector<int> back(8);
  cudaGraph_t graph = nullptr;
  REQUIRE(RT(rt(), cudaGraphCreate)(&graph, 0) == cudaSuccess);
  cudaGraphNode_t nodes[5] = {};
  const cudaMemsetParams fill = {words, 0, 1, sizeof(int), 8, 1};
  REQUIRE(RT(rt(), cudaGraphAddMemsetNode)(&nodes[0], graph, nullptr, 0, &fill) == cudaSuccess);
  REQUIRE(RT(rt(), cudaGraphAddMemcpyNodeToSymbol)(&nodes[1], graph, nullptr, 0, &total_here,
                                                   &start, 4, 0,
                                                   cudaMemcpyHostToDevice) == cudaSuccess);
  void* arguments[] = {&words, &n, &by};
  const cudaKernelNodeParams kernel = {&add_here, {1, 1, 1}, {32, 1, 1}, 0, arguments, nullptr};
  REQUIRE(RT(rt(), cudaGraphAddKernelNode)(&nodes[2], graph, nodes, 2, &kernel) == cudaSuccess);
  REQUIRE(RT(rt(), cudaGraphAddMemcpyNode1D)(&nodes[3], graph, &nodes[2], 1, back.data(), words,
                                             8 * sizeof(int),
                                             cudaMemcpyDeviceToHost) == cudaSuccess);
  REQUIRE(RT(rt(), cudaGraphAddMemcpyNodeFromSymbol)(&nodes[4], graph, &nodes[2], 1, &total,
                                                     &total_here, 4, 0,
                                                     cudaMemcpyDeviceToHost) == cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  REQUIRE(RT(rt(), cudaGraphInstantiate)(&exec, graph, 0) == cudaSuccess);
  for (int time = 0; time < 2; ++time) {
    REQUIRE(RT(rt(), cudaGraphLaunch)(exec, nullptr) == cudaSuccess);
    REQUIRE(RT(rt(), cudaDeviceSynchronize)() == cudaSuccess);
    CHECK(back == std::vector<int>(8, 1 + 3));
    CHECK(total == 100 + 8 * 3);
  }
  // Other parameters after the graph was instantiated.
  by = 10;
  const int other = 1000;
  REQUIRE(RT(rt(), cudaGraphExecKernelNodeSetParams)(exec, nodes[2], &kernel) == cudaSuccess);
  REQUIRE(RT(rt(), cudaGraphExecMemcpyNodeSetParamsToSymbol)(
              exec, nodes[1], &total_here, &other, 4, 0, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(RT(rt(), cudaGraphExecKernelNodeSetParams)(exec, nodes[1], &kernel) ==
        cudaErrorInvalidValue);
  REQUIRE(RT(rt(), cudaGraphLaunch)(exec, nullptr) == cudaSuccess);
  REQUIRE(RT(rt(), cudaDeviceSynchronize)() == cudaSuccess);
  CHECK(back == std::vector<int>(8, 1 + 10));
  CHECK(total == 1000 + 8 * 10);
  CHECK(RT(rt(), cudaGetLastError)() == cudaErrorInvalidValue);
  CHECK(RT(rt(), cudaGraphExecDestroy)(exec) == cudaSuccess);
  CHECK(RT(rt(), cudaGraphDestroy)(graph) == cudaSuccess);
  CHECK(RT(rt(), cudaFree)(words) == cudaSuccess);
}

TEST_CASE("attributes of a launch are the driver's") {
  const std::vector<uint64_t> image = fat_binary_of(adding_text());
  Registered code(rt(), image.data());
  code.kernel(&add_here, "add");
  const Words words(rt(), 8, 0);
  int n = 8, by = 1;
  void* arguments[] = {words.pointer(), &n, &by};
  CUlaunchAttribute attribute = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = {1u << 20, 1, 1};
  config.blockDim = {1024, 1, 1};
  config.attrs = reinterpret_cast<cudaLaunchAttribute*>(&attribute);
  config.numAttrs = 1;
  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  CHECK(RT(rt(), cudaLaunchKernelExC)(&config, &add_here, arguments) ==
        cudaErrorCooperativeLaunchTooLarge);
  config.gridDim = {3, 1, 1};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {2, 1, 1};
  CHECK(RT(rt(), cudaLaunchKernelExC)(&config, &add_here, arguments) ==
        cudaErrorInvalidClusterSize);
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;  // the driver has nothing behind it
  CHECK(RT(rt(), cudaLaunchKernelExC)(&config, &add_here, arguments) == cudaErrorNotSupported);
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CHECK(RT(rt(), cudaLaunchKernelExC)(&config, &add_here, arguments) == cudaSuccess);
  CHECK(words.read() == std::vector<int>(8, 1));
  CHECK(RT(rt(), cudaLaunchKernelExC)(nullptr, &add_here, arguments) == cudaErrorInvalidValue);
  CHECK(RT(rt(), cudaGetLastError)() == cudaErrorInvalidValue);
}

TEST_CASE("callbacks get the stream, no error and the caller's pointer, in order") {
  struct Seen {
    cudaStream_t stream = nullptr;
    cudaError_t status = cudaErrorUnknown;
    int functions = 0, functions_before = -1;
  } seen;
  cudaStream_t stream = nullptr;
  REQUIRE(RT(rt(), cudaStreamCreate)(&stream) == cudaSuccess);
  const cudaHostFn_t function = [](void* data) { ++static_cast<Seen*>(data)->functions; };
  const cudaStreamCallback_t callback = [](cudaStream_t which, cudaError_t status, void* data) {
    auto* into = static_cast<Seen*>(data);
    into->stream = which;
    into->status = status;
    into->functions_before = into->functions;
  };
  CHECK(RT(rt(), cudaLaunchHostFunc)(stream, function, &seen) == cudaSuccess);
  CHECK(RT(rt(), cudaStreamAddCallback)(stream, callback, &seen, 0) == cudaSuccess);
  CHECK(RT(rt(), cudaLaunchHostFunc)(stream, function, &seen) == cudaSuccess);
  CHECK(RT(rt(), cudaStreamSynchronize)(stream) == cudaSuccess);
  CHECK(seen.stream == stream);
  CHECK(seen.status == cudaSuccess);
  CHECK(seen.functions_before == 1);
  CHECK(seen.functions == 2);
  CHECK(RT(rt(), cudaStreamDestroy)(stream) == cudaSuccess);
}
