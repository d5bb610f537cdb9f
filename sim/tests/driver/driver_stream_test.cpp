// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover order within and between streams, events, host functions, waits for values.
#include <atomic>
#include <chrono>
#include <thread>

#include "sim/tests/driver/driver_client.h"

using namespace sim::tests;

namespace {

CUstream make_stream(unsigned flags) {
  CUstream stream = nullptr;
  REQUIRE(cuda().stream_create(&stream, flags) == CUDA_SUCCESS);
  return stream;
}

CUevent make_event(unsigned flags = CU_EVENT_DISABLE_TIMING) {
  CUevent event = nullptr;
  REQUIRE(cuda().event_create(&event, flags) == CUDA_SUCCESS);
  return event;
}

void append(CUstream stream, Trace* trace) {
  CHECK(cuda().launch_host_func(stream, Trace::append, trace) == CUDA_SUCCESS);
}

// Returns true if work in `later` ever runs before work that was put into `earlier` first.
bool overtakes(CUstream later, CUstream earlier) {
  bool overtaken = false;
  for (int attempt = 0; attempt < 200 && !overtaken; ++attempt) {
    std::vector<int> list;
    Trace one{&list, 1}, two{&list, 2};
    append(earlier, &one);
    append(later, &two);
    CHECK(cuda().ctx_synchronize() == CUDA_SUCCESS);
    overtaken = list == std::vector<int>{2, 1};
  }
  return overtaken;
}

}  // namespace

TEST_CASE("work of one stream runs in order") {
  const Primary primary;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  std::vector<int> list;
  std::vector<Trace> traces;
  for (int at = 0; at < 100; ++at) traces.push_back({&list, at});
  for (Trace& trace : traces) append(stream, &trace);
  CHECK(cuda().stream_synchronize(stream) == CUDA_SUCCESS);
  REQUIRE(list.size() == 100);
  for (int at = 0; at < 100; ++at) CHECK(list[static_cast<size_t>(at)] == at);
  CHECK(cuda().stream_query(stream) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
  CHECK(cuda().stream_query(stream) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("without an event the order between streams is free, with one it is not") {
  const Primary primary;
  const CUstream first = make_stream(CU_STREAM_NON_BLOCKING);
  const CUstream second = make_stream(CU_STREAM_NON_BLOCKING);
  CHECK(overtakes(second, first));
  const CUevent event = make_event();
  for (int attempt = 0; attempt < 50; ++attempt) {
    std::vector<int> list;
    Trace one{&list, 1}, two{&list, 2};
    append(first, &one);
    CHECK(cuda().event_record(event, first) == CUDA_SUCCESS);
    CHECK(cuda().stream_wait_event(second, event, 0) == CUDA_SUCCESS);
    append(second, &two);
    CHECK(cuda().ctx_synchronize() == CUDA_SUCCESS);
    CHECK(list == std::vector<int>{1, 2});
  }
  CHECK(cuda().event_destroy(event) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(first) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(second) == CUDA_SUCCESS);
}

TEST_CASE("the legacy stream orders blocking streams and not the others") {
  const Primary primary;
  const CUstream blocking = make_stream(CU_STREAM_DEFAULT);
  for (int attempt = 0; attempt < 50; ++attempt) {
    std::vector<int> list;
    Trace one{&list, 1}, two{&list, 2}, three{&list, 3};
    append(blocking, &one);
    append(nullptr, &two);
    append(blocking, &three);
    CHECK(cuda().ctx_synchronize() == CUDA_SUCCESS);
    CHECK(list == std::vector<int>{1, 2, 3});
  }
  const CUstream free = make_stream(CU_STREAM_NON_BLOCKING);
  CHECK(overtakes(nullptr, free));
  CHECK(cuda().stream_destroy(blocking) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(free) == CUDA_SUCCESS);
}

TEST_CASE("events: unrecorded, pending, timed") {
  const Primary primary;
  const CUstream stream = make_stream(CU_STREAM_NON_BLOCKING);
  const CUevent start = make_event(CU_EVENT_DEFAULT), end = make_event(CU_EVENT_DEFAULT);
  const CUevent untimed = make_event();
  float elapsed = 0;
  CHECK(cuda().event_query(start) == CUDA_SUCCESS);
  CHECK(cuda().event_elapsed_time(&elapsed, start, end) == CUDA_ERROR_INVALID_HANDLE);
  struct Gate {
    std::atomic<bool> open{false};
    static void CUDA_CB wait(void* data) {
      while (!static_cast<Gate*>(data)->open) std::this_thread::yield();
    }
  } gate;
  CHECK(cuda().event_record(start, stream) == CUDA_SUCCESS);
  CHECK(cuda().launch_host_func(stream, Gate::wait, &gate) == CUDA_SUCCESS);
  CHECK(cuda().event_record(end, stream) == CUDA_SUCCESS);
  CHECK(cuda().event_query(end) == CUDA_ERROR_NOT_READY);
  CHECK(cuda().stream_query(stream) == CUDA_ERROR_NOT_READY);
  CHECK(cuda().event_elapsed_time(&elapsed, start, end) == CUDA_ERROR_NOT_READY);
  gate.open = true;
  CHECK(cuda().event_synchronize(end) == CUDA_SUCCESS);
  CHECK(cuda().event_elapsed_time(&elapsed, start, end) == CUDA_SUCCESS);
  CHECK(elapsed >= 0);
  CHECK(cuda().event_record(untimed, stream) == CUDA_SUCCESS);
  CHECK(cuda().event_synchronize(untimed) == CUDA_SUCCESS);
  CHECK(cuda().event_elapsed_time(&elapsed, start, untimed) == CUDA_ERROR_INVALID_HANDLE);
  for (CUevent event : {start, end, untimed}) CHECK(cuda().event_destroy(event) == CUDA_SUCCESS);
  CHECK(cuda().event_query(start) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(cuda().stream_destroy(stream) == CUDA_SUCCESS);
}

TEST_CASE("a host function may not call the driver") {
  const Primary primary;
  CUresult answer = CUDA_SUCCESS;
  const auto call = [](void* data) {
    int count = 0;
    *static_cast<CUresult*>(data) = cuda().device_get_count(&count);
  };
  CHECK(cuda().launch_host_func(nullptr, call, &answer) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(nullptr) == CUDA_SUCCESS);
  CHECK(answer == CUDA_ERROR_NOT_PERMITTED);
}

TEST_CASE("work goes on without anybody waiting for it") {
  const Primary primary;
  std::atomic<bool> ran{false};
  const auto set = [](void* data) { *static_cast<std::atomic<bool>*>(data) = true; };
  CHECK(cuda().launch_host_func(nullptr, set, &ran) == CUDA_SUCCESS);
  while (!ran) std::this_thread::yield();
  CHECK(cuda().ctx_synchronize() == CUDA_SUCCESS);
}

TEST_CASE("a stream that waits for a value holds up neither its device nor cuMemFree") {
  const Primary primary;
  const CUstream held = make_stream(CU_STREAM_NON_BLOCKING);
  const CUstream other = make_stream(CU_STREAM_NON_BLOCKING);
  void* page = nullptr;
  REQUIRE(cuda().mem_host_alloc(&page, 4096, 0) == CUDA_SUCCESS);
  auto* flag = static_cast<uint32_t*>(page);
  *flag = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(page);
  const CUdeviceptr data = upload(std::vector<int>(4, 1));
  const CUdeviceptr unrelated = allocate(64);
  CHECK(cuda().stream_wait_value32(held, address, 3, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  CHECK(cuda().memset_d32_async(data, 7, 4, held) == CUDA_SUCCESS);
  CHECK(cuda().memset_d32_async(unrelated, 7, 4, other) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(other) == CUDA_SUCCESS);
  CHECK(cuda().stream_query(held) == CUDA_ERROR_NOT_READY);
  CHECK(cuda().mem_free(unrelated) == CUDA_SUCCESS);
  CHECK(cuda().stream_write_value32(other, address, 3, 0) == CUDA_SUCCESS);
  CHECK(cuda().stream_synchronize(held) == CUDA_SUCCESS);
  CHECK(download<int>(data, 4) == std::vector<int>(4, 7));
  CHECK(cuda().stream_wait_value32(held, address, 1, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
  __atomic_store_n(flag, 1u, __ATOMIC_RELEASE);  // by the host, with no call
  CHECK(cuda().stream_synchronize(held) == CUDA_SUCCESS);
  CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  CHECK(cuda().mem_free_host(page) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(held) == CUDA_SUCCESS);
  CHECK(cuda().stream_destroy(other) == CUDA_SUCCESS);
}
