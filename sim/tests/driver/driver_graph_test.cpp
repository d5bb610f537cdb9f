// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover stream capture and graphs.
#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

struct Streams {
  CUstream first = nullptr, second = nullptr;
  CUevent fork = nullptr, join = nullptr;
  Streams() {
    REQUIRE(cuda().stream_create(&first, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuda().stream_create(&second, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    REQUIRE(cuda().event_create(&fork, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
    REQUIRE(cuda().event_create(&join, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  }
  ~Streams() {
    CHECK(cuda().stream_destroy(first) == CUDA_SUCCESS);
    CHECK(cuda().stream_destroy(second) == CUDA_SUCCESS);
    CHECK(cuda().event_destroy(fork) == CUDA_SUCCESS);
    CHECK(cuda().event_destroy(join) == CUDA_SUCCESS);
  }
};

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

}  // namespace

TEST_CASE("captured work runs when its graph is launched, as often as that is") {
  const Primary primary;
  const Streams streams;
  const CUdeviceptr data = upload(std::vector<int>(4, 1)), copy = upload(std::vector<int>(4, 0));
  REQUIRE(cuda().stream_begin_capture(streams.first, kGlobal) == CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CHECK(cuda().stream_is_capturing(streams.first, &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(cuda().memcpy_dtod_async(copy, data, 16, streams.first) == CUDA_SUCCESS);
  CHECK(cuda().memset_d32_async(data, 5, 4, streams.first) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  REQUIRE(cuda().stream_end_capture(streams.first, &graph) == CUDA_SUCCESS);
  CHECK(download<int>(data, 4) == std::vector<int>(4, 1));  // nothing ran
  CUgraphExec exec = nullptr;
  REQUIRE(cuda().graph_instantiate_with_flags(&exec, graph, 0) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  CHECK(cuda().graph_launch(exec, streams.first) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(streams.first) == CUDA_SUCCESS);
  CHECK(download<int>(copy, 4) == std::vector<int>(4, 1));
  CHECK(download<int>(data, 4) == std::vector<int>(4, 5));
  CHECK(cuda().graph_launch(exec, streams.second) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(streams.second) == CUDA_SUCCESS);
  CHECK(download<int>(copy, 4) == std::vector<int>(4, 5));
  CHECK(cuda().graph_exec_destroy(exec) == CUDA_SUCCESS);
  CHECK(cuda().graph_launch(exec, streams.first) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(copy) == CUDA_SUCCESS);
}

TEST_CASE("a fork and a join through events keep their order, branches are free") {
  const Primary primary;
  const Streams streams;
  std::vector<int> list;
  Trace start{&list, 0}, left{&list, 1}, right{&list, 2}, end{&list, 3};
  const auto append = [](CUstream stream, Trace* trace) {
    CHECK(cuda().launch_host_func(stream, Trace::append, trace) == CUDA_SUCCESS);
  };
  REQUIRE(cuda().stream_begin_capture(streams.first, kRelaxed) == CUDA_SUCCESS);
  append(streams.first, &start);
  CHECK(cuda().event_record(streams.fork, streams.first) == CUDA_SUCCESS);
  CHECK(cuda().stream_wait_event(streams.second, streams.fork, 0) == CUDA_SUCCESS);
  append(streams.first, &left);
  append(streams.second, &right);
  CHECK(cuda().event_record(streams.join, streams.second) == CUDA_SUCCESS);
  CHECK(cuda().event_query(streams.join) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(cuda().stream_wait_event(streams.first, streams.join, 0) == CUDA_SUCCESS);
  append(streams.first, &end);
  CUgraph graph = nullptr;
  REQUIRE(cuda().stream_end_capture(streams.first, &graph) == CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  REQUIRE(cuda().graph_instantiate_with_flags(&exec, graph, 0) == CUDA_SUCCESS);
  bool both[2] = {};
  for (int attempt = 0; attempt < 100; ++attempt) {
    list.clear();
    CHECK(cuda().graph_launch(exec, streams.first) == CUDA_SUCCESS);
    CHECK(cuda().stream_synchronize(streams.first) == CUDA_SUCCESS);
    const bool swapped = list == std::vector<int>{0, 2, 1, 3};
    CHECK((swapped || list == std::vector<int>{0, 1, 2, 3}));
    both[swapped ? 1 : 0] = true;
  }
  CHECK(both[0]);
  CHECK(both[1]);
  CHECK(cuda().graph_exec_destroy(exec) == CUDA_SUCCESS);
  CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
}

TEST_CASE("what spoils a capture") {
  const Primary primary;
  const Streams streams;
  CUgraph graph = nullptr;
  CHECK(cuda().stream_begin_capture(nullptr, kGlobal) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuda().stream_end_capture(streams.first, &graph) == CUDA_ERROR_ILLEGAL_STATE);

  REQUIRE(cuda().stream_begin_capture(streams.first, kGlobal) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(streams.first) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuda().memset_d8_async(0, 0, 0, streams.first) == CUDA_SUCCESS);
  CHECK(cuda().stream_end_capture(streams.first, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  REQUIRE(cuda().stream_begin_capture(streams.first, kGlobal) == CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  CHECK(cuda().mem_alloc(&memory, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(cuda().stream_end_capture(streams.first, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  REQUIRE(cuda().stream_begin_capture(streams.first, kRelaxed) == CUDA_SUCCESS);
  CHECK(cuda().mem_alloc(&memory, 16) == CUDA_SUCCESS);
  CHECK(cuda().event_record(streams.fork, streams.first) == CUDA_SUCCESS);
  CHECK(cuda().stream_wait_event(streams.second, streams.fork, 0) == CUDA_SUCCESS);
  CHECK(cuda().memset_d8_async(memory, 1, 16, streams.second) == CUDA_SUCCESS);
  CHECK(cuda().stream_end_capture(streams.first, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(cuda().mem_free(memory) == CUDA_SUCCESS);

  CUstream blocking = nullptr;
  REQUIRE(cuda().stream_create(&blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  REQUIRE(cuda().stream_begin_capture(blocking, kRelaxed) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(cuda().stream_end_capture(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(cuda().stream_destroy(blocking) == CUDA_SUCCESS);
}
