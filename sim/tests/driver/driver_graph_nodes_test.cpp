// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover graphs made by hand, copies of boxes, stream memory operations, attributes of
// streams.
#include <algorithm>
#include <cstring>

#include "sim/tests/driver/driver_client.h"
#include "sim/tests/driver/driver_kernels.h"

using namespace sim::tests;

namespace {

CUDA_MEMCPY3D line_to_host(void* to, CUdeviceptr from, size_t bytes) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.WidthInBytes = bytes;
  copy.Height = copy.Depth = 1;
  return copy;
}

}  // namespace

TEST_CASE("a graph by hand: fill, kernel, copy, host function, in that order") {
  const Primary primary;
  CUmodule module = nullptr;
  CUfunction add = nullptr;
  REQUIRE(cuda().module_load_data(&module, kernels().c_str()) == CUDA_SUCCESS);
  REQUIRE(cuda().module_get_function(&add, module, "add") == CUDA_SUCCESS);
  CUdeviceptr a = allocate(256), b = allocate(256), c = allocate(256);
  int count = 64;
  std::vector<float> result(64, -1.0f);
  std::vector<int> seen;
  CUgraph graph = nullptr;
  REQUIRE(cuda().graph_create(&graph, 0) == CUDA_SUCCESS);
  CUgraphNode fill[2], kernel, copy, host, empty;
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.elementSize = 4;
  set.width = 64;
  set.height = 1;
  const CUdeviceptr targets[] = {a, b};
  const float values[] = {2.0f, 0.5f};
  for (int at = 0; at < 2; ++at) {
    set.dst = targets[at];
    std::memcpy(&set.value, &values[at], 4);
    REQUIRE(cuda().graph_add_memset_node(&fill[at], graph, nullptr, 0, &set, nullptr) ==
            CUDA_SUCCESS);
  }
  void* params[] = {&a, &b, &c, &count};
  CUDA_KERNEL_NODE_PARAMS launch = {};
  launch.func = add;
  launch.gridDimX = launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = 64;
  launch.blockDimY = launch.blockDimZ = 1;
  launch.kernelParams = params;
  REQUIRE(cuda().graph_add_kernel_node(&kernel, graph, fill, 2, &launch) == CUDA_SUCCESS);
  const CUDA_MEMCPY3D back = line_to_host(result.data(), c, 256);
  REQUIRE(cuda().graph_add_memcpy_node(&copy, graph, &kernel, 1, &back, nullptr) == CUDA_SUCCESS);
  Trace trace = {&seen, 7};
  const CUDA_HOST_NODE_PARAMS call = {Trace::append, &trace};
  REQUIRE(cuda().graph_add_host_node(&host, graph, nullptr, 0, &call) == CUDA_SUCCESS);
  REQUIRE(cuda().graph_add_empty_node(&empty, graph, nullptr, 0) == CUDA_SUCCESS);
  const CUgraphNode from[] = {copy, host}, to[] = {host, empty};
  CHECK(cuda().graph_add_dependencies(graph, from, to, nullptr, 2) == CUDA_SUCCESS);
  CHECK(cuda().graph_add_dependencies(graph, &empty, &fill[0], nullptr, 1) ==
        CUDA_ERROR_INVALID_VALUE);  // a circle
  CHECK(cuda().graph_add_dependencies(graph, from, to, nullptr, 1) ==
        CUDA_ERROR_INVALID_VALUE);  // there already

  size_t nodes = 0, roots = 0;
  CHECK(cuda().graph_get_nodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 6);
  CHECK(cuda().graph_get_root_nodes(graph, nullptr, &roots) == CUDA_SUCCESS);
  CHECK(roots == 2);
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK(cuda().graph_node_get_type(kernel, &type) == CUDA_SUCCESS);
  CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL);

  CUgraphExec exec = nullptr;
  REQUIRE(cuda().graph_instantiate_with_flags(&exec, graph, 0) == CUDA_SUCCESS);
  a = b = 0;  // parameters were copied when the node was made
  for (int round = 0; round < 3; ++round) {
    std::fill(result.begin(), result.end(), -1.0f);
    REQUIRE(cuda().graph_launch(exec, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuda().stream_synchronize(nullptr) == CUDA_SUCCESS);
    CHECK(result == std::vector<float>(64, 2.5f));
  }
  CHECK(seen == std::vector<int>{7, 7, 7});
  CHECK(cuda().graph_exec_destroy(exec) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  CHECK(cuda().module_unload(module) == CUDA_SUCCESS);
  for (const CUdeviceptr each : {targets[0], targets[1], c}) cuda().mem_free(each);
}

TEST_CASE("other parameters of nodes: of the graph, and of one that was instantiated") {
  const Primary primary;
  const CUdeviceptr words = allocate(8);
  std::vector<int> first(2), second(2);
  std::vector<int> seen;
  Trace one{&seen, 1}, two{&seen, 2};
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode nodes[3];
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = words;
  set.elementSize = 4;
  set.width = 2;
  set.height = 1;
  set.value = 5;
  CUDA_MEMCPY3D copy = line_to_host(first.data(), words, 8);
  CUDA_HOST_NODE_PARAMS call = {};
  call.fn = Trace::append;
  call.userData = &one;
  REQUIRE(cuda().graph_create(&graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuda().graph_add_memset_node(&nodes[0], graph, nullptr, 0, &set, nullptr) ==
          CUDA_SUCCESS);
  REQUIRE(cuda().graph_add_memcpy_node(&nodes[1], graph, &nodes[0], 1, &copy, nullptr) ==
          CUDA_SUCCESS);
  REQUIRE(cuda().graph_add_host_node(&nodes[2], graph, &nodes[1], 1, &call) == CUDA_SUCCESS);

  set.value = 6;
  CHECK(cuda().graph_memset_node_set_params(nodes[0], &set) == CUDA_SUCCESS);
  CHECK(cuda().graph_memset_node_set_params(nodes[1], &set) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().graph_memcpy_node_set_params(nodes[1], nullptr) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuda().graph_instantiate_with_flags(&exec, graph, 0) == CUDA_SUCCESS);
  set.value = 7;  // too late for what was instantiated
  CHECK(cuda().graph_memset_node_set_params(nodes[0], &set) == CUDA_SUCCESS);
  REQUIRE(cuda().graph_launch(exec, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuda().stream_synchronize(nullptr) == CUDA_SUCCESS);
  CHECK(first == std::vector<int>(2, 6));

  set.value = 8;
  copy = line_to_host(second.data(), words, 8);
  call.userData = &two;
  CHECK(cuda().graph_exec_memset_node_set_params(exec, nodes[0], &set, nullptr) == CUDA_SUCCESS);
  CHECK(cuda().graph_exec_memcpy_node_set_params(exec, nodes[1], &copy, nullptr) == CUDA_SUCCESS);
  CHECK(cuda().graph_exec_host_node_set_params(exec, nodes[2], &call) == CUDA_SUCCESS);
  CHECK(cuda().graph_exec_host_node_set_params(exec, nodes[0], &call) == CUDA_ERROR_INVALID_VALUE);
  set.dst = 0x1000;  // nobody's
  CHECK(cuda().graph_exec_memset_node_set_params(exec, nodes[0], &set, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  REQUIRE(cuda().graph_launch(exec, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuda().stream_synchronize(nullptr) == CUDA_SUCCESS);
  CHECK(first == std::vector<int>(2, 6));
  CHECK(second == std::vector<int>(2, 8));
  CHECK(seen == std::vector<int>{1, 2});
  CHECK(cuda().graph_exec_destroy(exec) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(words) == CUDA_SUCCESS);
}

TEST_CASE("nodes that cannot be are refused when they are added") {
  const Primary primary;
  CUgraph graph = nullptr, other = nullptr;
  REQUIRE(cuda().graph_create(&graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuda().graph_create(&other, 0) == CUDA_SUCCESS);
  CUgraphNode node, foreign;
  REQUIRE(cuda().graph_add_empty_node(&foreign, other, nullptr, 0) == CUDA_SUCCESS);
  CHECK(cuda().graph_add_empty_node(&node, graph, &foreign, 1) == CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = 0x1000;
  set.elementSize = 3;
  set.width = set.height = 1;
  CHECK(cuda().graph_add_memset_node(&node, graph, nullptr, 0, &set, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  set.elementSize = 4;  // but the address is nobody's
  CHECK(cuda().graph_add_memset_node(&node, graph, nullptr, 0, &set, nullptr) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(other) == CUDA_SUCCESS);
}

TEST_CASE("copies of boxes against plain loops") {
  const Primary primary;
  constexpr size_t kPitch = 48, kRows = 7, kLayers = 5;  // of the source
  constexpr size_t kTo = 20, kToRows = 6;                // of the target
  std::vector<unsigned char> source(kPitch * kRows * kLayers);
  for (size_t at = 0; at < source.size(); ++at) source[at] = static_cast<unsigned char>(at * 7);
  const CUdeviceptr device = upload(source);
  for (const bool synchronous : {true, false}) {
    std::vector<unsigned char> target(kTo * kToRows * 4, 0xEE), expected = target;
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = device;
    copy.srcPitch = kPitch;
    copy.srcHeight = kRows;
    copy.srcXInBytes = 3;
    copy.srcY = 2;
    copy.srcZ = 1;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = target.data();
    copy.dstPitch = kTo;
    copy.dstHeight = kToRows;
    copy.dstXInBytes = 5;
    copy.dstY = 1;
    copy.dstZ = 1;
    copy.WidthInBytes = 11;
    copy.Height = 4;
    copy.Depth = 3;
    CHECK((synchronous ? cuda().memcpy_3d(&copy) : cuda().memcpy_3d_async(&copy, nullptr)) ==
          CUDA_SUCCESS);
    for (size_t z = 0; z < 3; ++z) {
      for (size_t y = 0; y < 4; ++y) {
        for (size_t x = 0; x < 11; ++x) {
          expected[((z + 1) * kToRows + y + 1) * kTo + x + 5] =
              source[((z + 1) * kRows + y + 2) * kPitch + x + 3];
        }
      }
    }
    CHECK(target == expected);
    copy.srcZ = 3;  // one layer past the end
    CHECK(cuda().memcpy_3d(&copy) == CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    CHECK(cuda().memcpy_3d(&copy) == CUDA_ERROR_INVALID_VALUE);
  }
  const CUdeviceptr room = upload(std::vector<uint16_t>(64, 1));
  CHECK(cuda().memset_d2d16(room + 2, 32, 0xABCD, 3, 4) == CUDA_SUCCESS);
  const auto cells = download<uint16_t>(room, 64);
  for (size_t at = 0; at < 64; ++at) {
    const bool inside = at % 16 >= 1 && at % 16 <= 3;
    CHECK(cells[at] == (inside ? 0xABCD : 1));
  }
  cuda().mem_free(device);
  cuda().mem_free(room);
}

TEST_CASE("stream memory operations on 64 bits and in batches") {
  const Primary primary;
  CUstream first = nullptr, second = nullptr;
  REQUIRE(cuda().stream_create(&first, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuda().stream_create(&second, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  const CUdeviceptr flags = upload(std::vector<uint64_t>(4, 0));
  CUstreamBatchMemOpParams batch[3] = {};
  batch[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  batch[0].waitValue.address = flags;
  batch[0].waitValue.value64 = 1ull << 40;
  batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  batch[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  batch[1].writeValue.address = flags + 8;
  batch[1].writeValue.value = 5;
  batch[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  batch[2].writeValue.address = flags + 16;
  batch[2].writeValue.value64 = 6ull << 33;
  CHECK(cuda().stream_batch_mem_op(first, 3, batch, 0) == CUDA_SUCCESS);
  CHECK(cuda().stream_query(first) == CUDA_ERROR_NOT_READY);
  CHECK(cuda().stream_write_value64(second, flags, (1ull << 40) + 1, 0) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(first) == CUDA_SUCCESS);
  CHECK(download<uint64_t>(flags, 3) == std::vector<uint64_t>{(1ull << 40) + 1, 5, 6ull << 33});
  CHECK(cuda().stream_wait_value64(first, flags + 4, 0, 0) == CUDA_ERROR_INVALID_VALUE);
  batch[2].writeValue.address = flags + 12;  // nothing of a batch with a mistake is done
  batch[1].writeValue.value = 9;
  CHECK(cuda().stream_batch_mem_op(first, 3, batch, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().stream_synchronize(first) == CUDA_SUCCESS);
  CHECK(download<uint64_t>(flags, 2)[1] == 5);
  CHECK(cuda().stream_destroy(first) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(second) == CUDA_SUCCESS);
  cuda().mem_free(flags);
}

TEST_CASE("attributes of streams are answered as they were set") {
  const Primary primary;
  CUstream stream = nullptr;
  REQUIRE(cuda().stream_create(&stream, 0) == CUDA_SUCCESS);
  CUstreamAttrValue value = {};
  value.syncPolicy = CU_SYNC_POLICY_YIELD;
  CHECK(cuda().stream_set_attribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value) ==
        CUDA_SUCCESS);
  CUstreamAttrValue got = {};
  CHECK(cuda().stream_get_attribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got) ==
        CUDA_SUCCESS);
  CHECK(got.syncPolicy == CU_SYNC_POLICY_YIELD);
  CHECK(cuda().stream_get_attribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &got) ==
        CUDA_SUCCESS);
  CHECK(got.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT);
  CHECK(cuda().stream_set_attribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) ==
        CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
}
