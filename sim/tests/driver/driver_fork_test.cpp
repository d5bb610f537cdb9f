// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A child of fork() has none of the library's threads: every call there is refused, and none hangs.
#include "sim/tests/child.h"
#include "sim/tests/driver/nccl_client.h"

namespace {

using sim::tests::Child;
using sim::tests::cuda;
using sim::tests::in_child;
using sim::tests::nccl;

constexpr unsigned kDeadline = 60;  // seconds; a child that hangs dies of SIGALRM, status -1

// A parent has this before it forks: work done, so that the library's threads exist.
struct Parent {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  ncclComm_t comm = nullptr;

  Parent() {
    REQUIRE(cuda().init(0) == CUDA_SUCCESS);
    REQUIRE(cuda().device_primary_ctx_retain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuda().ctx_set_current(context) == CUDA_SUCCESS);
    REQUIRE(cuda().stream_create(&stream, 0) == CUDA_SUCCESS);
    REQUIRE(cuda().event_create(&event, 0) == CUDA_SUCCESS);
    REQUIRE(cuda().mem_alloc(&memory, 64) == CUDA_SUCCESS);
    const int device = 0;
    REQUIRE(nccl().comm_init_all(&comm, 1, &device) == ncclSuccess);
    REQUIRE(nccl().all_reduce(reinterpret_cast<void*>(memory), reinterpret_cast<void*>(memory), 4,
                              ncclFloat32, ncclSum, comm,
                              reinterpret_cast<CUstream>(stream)) == ncclSuccess);
    REQUIRE(cuda().stream_synchronize(stream) == CUDA_SUCCESS);
  }
};

Parent& parent() {
  static Parent* const made = new Parent;
  return *made;
}

// Returns the number of the first of these calls that was answered in another way; 0: none.
int refused_by_driver(const Parent& p) {
  alarm(kDeadline);
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUcontext context = nullptr;
  int number = 0;
  char bytes[64];
  const CUresult answers[] = {
      cuda().init(0),
      cuda().device_get_count(&number),
      cuda().device_primary_ctx_retain(&context, 0),
      cuda().ctx_get_current(&context),
      cuda().ctx_synchronize(),
      cuda().mem_alloc(&memory, 64),
      cuda().mem_free(p.memory),
      cuda().memcpy_dtoh(bytes, p.memory, sizeof bytes),
      cuda().stream_create(&stream, 0),
      cuda().stream_synchronize(p.stream),
      cuda().stream_query(p.stream),
      cuda().stream_destroy(p.stream),
      cuda().event_record(p.event, p.stream),
      cuda().event_destroy(p.event),
      cuda().launch_kernel(nullptr, 1, 1, 1, 1, 1, 1, 0, p.stream, nullptr, nullptr),
      cuda().device_primary_ctx_release(0)};
  int at = 0;
  for (const CUresult answer : answers) {
    ++at;
    if (answer != CUDA_ERROR_NOT_INITIALIZED) return at;
  }
  return 0;
}

int refused_by_nccl(const Parent& p) {
  alarm(kDeadline);
  void* const memory = reinterpret_cast<void*>(p.memory);
  ncclUniqueId id;
  ncclComm_t made = nullptr;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t answers[] = {
      nccl().get_unique_id(&id),
      nccl().comm_init_rank(&made, 1, id, 0),
      nccl().comm_get_async_error(p.comm, &state),
      nccl().all_reduce(memory, memory, 4, ncclFloat32, ncclSum, p.comm, nullptr),
      nccl().send(memory, 4, ncclFloat32, 0, p.comm, nullptr),
      nccl().comm_abort(p.comm),
      nccl().comm_destroy(p.comm)};
  int at = 0;
  for (const ncclResult_t answer : answers) {
    ++at;
    if (answer == ncclSuccess) return at;
  }
  return std::string(nccl().get_last_error(nullptr)).find("fork()") == std::string::npos ? -1 : 0;
}

}  // namespace

TEST_CASE("a child that forks before its parent uses CUDA has a driver of its own") {
  const Child child = in_child({}, [] {
    alarm(kDeadline);
    return static_cast<int>(cuda().init(0));
  });
  CHECK(child.status == 0);
}

TEST_CASE("every driver call of a forked child is refused") {
  const Parent& p = parent();
  CHECK(in_child({}, [&] { return refused_by_driver(p); }).status == 0);
}

TEST_CASE("every NCCL call of a forked child is refused, with a reason") {
  const Parent& p = parent();
  CHECK(in_child({}, [&] { return refused_by_nccl(p); }).status == 0);
}

TEST_CASE("fork in the middle of work harms neither side") {
  const Parent& p = parent();
  for (int turn = 0; turn < 10; ++turn) {
    REQUIRE(cuda().memset_d8_async(p.memory, 1, 64, p.stream) == CUDA_SUCCESS);
    CHECK(in_child({}, [&] { return refused_by_driver(p); }).status == 0);
    CHECK(cuda().stream_synchronize(p.stream) == CUDA_SUCCESS);
  }
}
