// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover user objects of graphs, and forked streams that are destroyed before their
// capture ends.
#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

template <typename F>
F symbol(const char* name) {
  void* found = dlsym(cuda().library, name);
  REQUIRE(found != nullptr);
  return reinterpret_cast<F>(found);
}

void count_up(void* counter) { ++*static_cast<int*>(counter); }

constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

// Forks `side` off a capture in `first`, and joins it again if `join` says so.
CUresult capture_with_side_stream(bool join, CUgraph* graph) {
  CUstream first = nullptr, side = nullptr;
  CUevent fork = nullptr, joined = nullptr;
  REQUIRE(cuda().stream_create(&first, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuda().stream_create(&side, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  REQUIRE(cuda().event_create(&fork, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuda().event_create(&joined, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  const CUdeviceptr data = upload(std::vector<int>(4, 1));
  REQUIRE(cuda().stream_begin_capture(first, kRelaxed) == CUDA_SUCCESS);
  CHECK(cuda().event_record(fork, first) == CUDA_SUCCESS);
  CHECK(cuda().stream_wait_event(side, fork, 0) == CUDA_SUCCESS);
  CHECK(cuda().memset_d32_async(data, 5, 4, side) == CUDA_SUCCESS);
  CHECK(cuda().event_record(joined, side) == CUDA_SUCCESS);
  if (join) CHECK(cuda().stream_wait_event(first, joined, 0) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(side) == CUDA_SUCCESS);
  const CUresult result = cuda().stream_end_capture(first, graph);
  CHECK(cuda().stream_destroy(first) == CUDA_SUCCESS);
  CHECK(cuda().event_destroy(fork) == CUDA_SUCCESS);
  CHECK(cuda().event_destroy(joined) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  return result;
}

}  // namespace

TEST_CASE("a user object lives as long as its last reference") {
  const Primary primary;
  auto create = symbol<decltype(&cuUserObjectCreate)>("cuUserObjectCreate");
  auto retain = symbol<decltype(&cuUserObjectRetain)>("cuUserObjectRetain");
  auto release = symbol<decltype(&cuUserObjectRelease)>("cuUserObjectRelease");
  auto keep = symbol<decltype(&cuGraphRetainUserObject)>("cuGraphRetainUserObject");
  auto let_go = symbol<decltype(&cuGraphReleaseUserObject)>("cuGraphReleaseUserObject");
  auto make_graph = symbol<decltype(&cuGraphCreate)>("cuGraphCreate");
  auto instantiate =
      symbol<decltype(&cuGraphInstantiateWithParams)>("cuGraphInstantiateWithParams");
  constexpr unsigned kNoSync = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;

  int destroyed = 0;
  CUuserObject object = nullptr;
  CHECK(create(&object, &destroyed, count_up, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(create(&object, &destroyed, nullptr, 1, kNoSync) == CUDA_ERROR_INVALID_VALUE);
  REQUIRE(create(&object, &destroyed, count_up, 2, kNoSync) == CUDA_SUCCESS);
  CHECK(release(object, 3) == CUDA_ERROR_INVALID_VALUE);
  CHECK(retain(object, 1) == CUDA_SUCCESS);
  CHECK(release(object, 2) == CUDA_SUCCESS);
  CHECK(destroyed == 0);
  CHECK(release(object, 1) == CUDA_SUCCESS);
  CHECK(destroyed == 1);
  CHECK(release(object, 1) == CUDA_ERROR_INVALID_VALUE);

  REQUIRE(create(&object, &destroyed, count_up, 1, kNoSync) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  REQUIRE(make_graph(&graph, 0) == CUDA_SUCCESS);
  CHECK(keep(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS);
  CHECK(release(object, 1) == CUDA_ERROR_INVALID_VALUE);  // the graph has it now
  CHECK(let_go(graph, object, 2) == CUDA_ERROR_INVALID_VALUE);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  REQUIRE(instantiate(&exec, graph, &params) == CUDA_SUCCESS);
  CHECK(params.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS);
  CHECK(let_go(graph, object, 1) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  CHECK(destroyed == 1);
  CHECK(cuda().graph_exec_destroy(exec) == CUDA_SUCCESS);
  CHECK(destroyed == 2);
}

TEST_CASE("a forked stream may be destroyed once it is joined") {
  const Primary primary;
  CUgraph graph = nullptr;
  CHECK(capture_with_side_stream(true, &graph) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  CHECK(capture_with_side_stream(false, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
}

TEST_CASE("functions with twins are found by the version that brought them") {
  const Primary primary;
  auto address = symbol<decltype(&cuGetProcAddress_v2)>("cuGetProcAddress_v2");
  void* function = nullptr;
  CHECK(address("cuMemcpyAsync", &function, 4000, 0, nullptr) == CUDA_SUCCESS);
  CHECK(function != nullptr);
  CHECK(address("cuMemcpyAsync", &function, 4000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                nullptr) == CUDA_ERROR_NOT_FOUND);
  CHECK(address("cuMemcpyAsync", &function, 7000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
                nullptr) == CUDA_SUCCESS);
}
