// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Ranks do not agree, do not come, or leave: streams go on, both sides are named, nothing hangs.
// The time a partner may take is short here.
#include <chrono>

#include "sim/tests/driver/driver_kernels.h"
#include "sim/tests/driver/nccl_client.h"

using namespace sim::tests;

namespace {

const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);
const int kTimeoutSet = setenv("LATHE_SIM_NCCL_TIMEOUT_MS", "1500", 1);

// Waits for the stream, which must not hang, and returns the communicator's error and text.
struct Verdict {
  ncclResult_t error = ncclSuccess;
  std::string text;
};
Verdict verdict(const Rank& rank) {
  rank.synchronize();
  Verdict out;
  CHECK(nccl().comm_get_async_error(rank.comm, &out.error) == ncclSuccess);
  out.text = nccl().get_last_error(rank.comm);
  return out;
}

ncclResult_t all_reduce(const Rank& rank, CUdeviceptr data, size_t count,
                        ncclDataType_t type = ncclInt32, ncclRedOp_t op = ncclSum) {
  return nccl().all_reduce(pointer(data), pointer(data), count, type, op, rank.comm, rank.stream);
}

// Runs `body` on two ranks and checks that both see the error and a text with both parts.
void expect(ncclResult_t error, const std::string& first, const std::string& second,
            const std::function<void(Rank&, CUdeviceptr)>& body) {
  run_ranks(2, [&](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(16, rank.index));
    body(rank, data);
    const Verdict seen = verdict(rank);
    CHECK(seen.error == error);
    INFO(seen.text);
    CHECK(contains(seen.text, first));
    CHECK(contains(seen.text, second));
    CHECK(all_reduce(rank, data, 4) == error);  // and so do later calls
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

}  // namespace

TEST_CASE("a world that no process has is refused before anything is taken") {
  const Primary primary(0);
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  for (const int world : {65537, 1000000000, 0}) {
    ncclComm_t comm = nullptr;
    CHECK(nccl().comm_init_rank(&comm, world, id, 0) == ncclInvalidArgument);
    CHECK(comm == nullptr);
    CHECK(contains(nccl().get_last_error(nullptr), "nranks is " + std::to_string(world)));
  }
  ncclComm_t comm = nullptr;  // and one that is allowed waits, and names a few of the missing
  CHECK(nccl().comm_init_rank(&comm, 65536, id, 0) == ncclRemoteError);
  CHECK(contains(nccl().get_last_error(nullptr), "1, 2, 3"));
  CHECK(contains(nccl().get_last_error(nullptr), "and 65519 more"));
}

TEST_CASE("counts that differ") {
  expect(ncclInvalidUsage, "rank 0 calls AllReduce #0 (count 4, int32, sum)",
         "rank 1 calls AllReduce #0 (count 5, int32, sum)", [](Rank& rank, CUdeviceptr data) {
           const ncclResult_t result = all_reduce(rank, data, rank.index == 0 ? 4 : 5);
           CHECK((result == ncclSuccess || result == ncclInvalidUsage));
         });
}

TEST_CASE("types that differ") {
  expect(ncclInvalidUsage, "int32", "float32", [](Rank& rank, CUdeviceptr data) {
    all_reduce(rank, data, 4, rank.index == 0 ? ncclInt32 : ncclFloat32);
  });
}

TEST_CASE("operations that differ") {
  expect(ncclInvalidUsage, "sum", "max", [](Rank& rank, CUdeviceptr data) {
    all_reduce(rank, data, 4, ncclInt32, rank.index == 0 ? ncclSum : ncclMax);
  });
}

TEST_CASE("roots that differ") {
  expect(ncclInvalidUsage, "root 0", "root 1", [](Rank& rank, CUdeviceptr data) {
    nccl().bcast(pointer(data), 4, ncclInt32, rank.index, rank.comm, rank.stream);
  });
}

TEST_CASE("another collective") {
  expect(ncclInvalidUsage, "rank 0 calls AllReduce", "rank 1 calls AllGather",
         [](Rank& rank, CUdeviceptr data) {
           if (rank.index == 0) {
             all_reduce(rank, data, 4);
           } else {
             nccl().all_gather(pointer(data), pointer(data + 32), 4, ncclInt32, rank.comm,
                               rank.stream);
           }
         });
}

TEST_CASE("a send and a receive of different counts") {
  expect(ncclInvalidUsage, "rank 0 calls Send #0 to rank 1 (count 4",
         "rank 1 calls Recv #0 from rank 0 (count 8", [](Rank& rank, CUdeviceptr data) {
           if (rank.index == 0) {
             nccl().send(pointer(data), 4, ncclInt32, 1, rank.comm, rank.stream);
           } else {
             nccl().recv(pointer(data), 8, ncclInt32, 0, rank.comm, rank.stream);
           }
         });
}

TEST_CASE("a partner that never comes") {
  run_ranks(3, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 1));
    if (rank.index != 1) CHECK(all_reduce(rank, data, 4) == ncclSuccess);
    Verdict seen = verdict(rank);
    while (seen.error == ncclSuccess) {  // rank 1 has nothing to wait for
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      seen = verdict(rank);
    }
    CHECK(seen.error == ncclRemoteError);
    INFO(seen.text);
    CHECK(contains(seen.text, "calls AllReduce #0 (count 4, int32, sum)"));
    CHECK(contains(seen.text, "1500 ms for rank 1; rank 1 has called nothing"));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("a send against a collective") {
  expect(ncclRemoteError, "rank 0", "rank 1", [](Rank& rank, CUdeviceptr data) {
    if (rank.index == 0) {
      CHECK(nccl().send(pointer(data), 4, ncclInt32, 1, rank.comm, rank.stream) == ncclSuccess);
    } else {
      CHECK(all_reduce(rank, data, 4) == ncclSuccess);
    }
  });
}

TEST_CASE("ungrouped sends before receives on both sides are a deadlock that is told") {
  expect(ncclInvalidUsage, "deadlock", "order of their streams", [](Rank& rank, CUdeviceptr data) {
    nccl().send(pointer(data), 4, ncclInt32, 1 - rank.index, rank.comm, rank.stream);
    nccl().recv(pointer(data + 32), 4, ncclInt32, 1 - rank.index, rank.comm, rank.stream);
  });
}

TEST_CASE("a partner that aborts") {
  std::atomic<bool> waiting{false};
  run_ranks(2, [&](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 1));
    if (rank.index == 0) {
      CHECK(all_reduce(rank, data, 4) == ncclSuccess);
      waiting = true;
      const Verdict seen = verdict(rank);
      CHECK(seen.error == ncclRemoteError);
      INFO(seen.text);
      CHECK(contains(seen.text, "rank 1 aborted the communicator"));
    } else {
      while (!waiting) std::this_thread::yield();
      CHECK(nccl().comm_abort(rank.comm) == ncclSuccess);
      rank.comm = nullptr;
    }
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("a partner that destroyed its communicator") {
  std::atomic<bool> gone{false};
  run_ranks(2, [&](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 1));
    if (rank.index == 1) {
      CHECK(nccl().comm_destroy(rank.comm) == ncclSuccess);
      rank.comm = nullptr;
      gone = true;
    } else {
      while (!gone) std::this_thread::yield();
      all_reduce(rank, data, 4);
      const Verdict seen = verdict(rank);
      CHECK(seen.error == ncclRemoteError);
      INFO(seen.text);
      CHECK(contains(seen.text, "rank 1 has destroyed its communicator"));
    }
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("a kernel fault on one device releases the rank on the other") {
  run_ranks(2, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 1));
    if (rank.index == 1) {
      // The other rank may have failed before this one calls: then the call itself says so.
      const ncclResult_t called = all_reduce(rank, data, 4);
      CHECK((called == ncclSuccess || called == ncclUnhandledCudaError));
      const Verdict seen = verdict(rank);
      CHECK(seen.error == ncclUnhandledCudaError);
      INFO(seen.text);
      CHECK(contains(seen.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
      CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
      return;
    }
    CUmodule module = nullptr;
    CUfunction reverse = nullptr;
    CHECK(cuda().module_load_data(&module, kernels().c_str()) == CUDA_SUCCESS);
    CHECK(cuda().module_get_function(&reverse, module, "reverse") == CUDA_SUCCESS);
    CUdeviceptr nowhere = 64;
    void* params[] = {&nowhere};
    CHECK(cuda().launch_kernel(reverse, 1, 1, 1, 4, 1, 1, 16, rank.stream, params, nullptr) ==
          CUDA_SUCCESS);
    const ncclResult_t result = all_reduce(rank, data, 4);
    CHECK((result == ncclSuccess || result == ncclUnhandledCudaError));
    CHECK(cuda().stream_synchronize(rank.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(nccl().comm_destroy(rank.comm) == ncclSuccess);
    rank.comm = nullptr;
    rank.stream = nullptr;
    CHECK(cuda().device_primary_ctx_reset(0) == CUDA_SUCCESS);
  });
}

TEST_CASE("bad arguments are answered at once and harm nothing") {
  run_ranks(1, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 5));
    std::vector<int> host(4);
    const auto type = static_cast<ncclDataType_t>(99);
    const auto op = static_cast<ncclRedOp_t>(99);
    CHECK(nccl().all_reduce(nullptr, pointer(data), 4, ncclInt32, ncclSum, rank.comm,
                            rank.stream) == ncclInvalidArgument);
    CHECK(nccl().all_reduce(host.data(), pointer(data), 4, ncclInt32, ncclSum, rank.comm,
                            rank.stream) == ncclInvalidArgument);
    CHECK(contains(nccl().get_last_error(nullptr), "not device or pinned memory"));
    CHECK(all_reduce(rank, data, 4, type) == ncclInvalidArgument);
    CHECK(all_reduce(rank, data, 4, ncclInt32, op) == ncclInvalidArgument);
    CHECK(all_reduce(rank, data, 4, ncclFloat8e4m3) == ncclInvalidArgument);
    CHECK(nccl().send(pointer(data), 4, ncclInt32, 7, rank.comm, rank.stream) ==
          ncclInvalidArgument);
    CHECK(nccl().all_reduce(pointer(data), pointer(data), 4, ncclInt32, ncclSum, nullptr,
                            nullptr) == ncclInvalidArgument);
    CHECK(nccl().group_end() == ncclInvalidUsage);
    CHECK(nccl().group_start() == ncclSuccess);
    CHECK(all_reduce(rank, data, 4, type) == ncclInvalidArgument);
    CHECK(all_reduce(rank, data, 4) == ncclSuccess);
    CHECK(nccl().group_end() == ncclInvalidArgument);  // and nothing was launched
    CHECK(all_reduce(rank, data, 4) == ncclSuccess);
    rank.synchronize();
    CHECK(download<int>(data, 4) == std::vector<int>(4, 5));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}
