// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover ranks that join a communicator late, never, without blocking, or while another
// one aborts. The time a partner may take is short here.
#include <thread>

#include "sim/tests/driver/nccl_client.h"

using namespace sim::tests;

namespace {

const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);
const int kTimeoutSet = setenv("LATHE_SIM_NCCL_TIMEOUT_MS", "1500", 1);

ncclComm_t begin_join(int size, const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  CHECK(nccl().comm_init_rank_config(&comm, size, id, rank, &config) == ncclInProgress);
  REQUIRE(comm != nullptr);
  return comm;
}

ncclResult_t async_error(ncclComm_t comm) {
  ncclResult_t error = ncclInternalError;
  CHECK(nccl().comm_get_async_error(comm, &error) == ncclSuccess);
  return error;
}

}  // namespace

TEST_CASE("a rank that never joins") {
  const Primary primary(0);
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  CHECK(nccl().comm_init_rank(&comm, 2, id, 0) == ncclRemoteError);
  CHECK(comm == nullptr);
  CHECK(contains(nccl().get_last_error(nullptr), "for ranks 1 to join"));
}

TEST_CASE("a non-blocking join is in progress until all ranks have met") {
  const Primary primary(0);
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  const CUdeviceptr data = upload(std::vector<int>(4, 5));
  ncclComm_t comms[2] = {begin_join(2, id, 1)};
  CHECK(async_error(comms[0]) == ncclInProgress);
  int count = 0;
  CHECK(nccl().comm_count(comms[0], &count) == ncclInvalidArgument);
  CHECK(nccl().all_reduce(pointer(data), pointer(data), 4, ncclInt32, ncclSum, comms[0], nullptr) ==
        ncclInvalidArgument);
  CHECK(contains(nccl().get_last_error(nullptr), "in progress"));
  comms[1] = begin_join(2, id, 0);
  CHECK(nccl().group_start() == ncclSuccess);
  for (ncclComm_t comm : comms) {
    CHECK(async_error(comm) == ncclSuccess);
    CHECK(nccl().comm_count(comm, &count) == ncclSuccess);
    CHECK(count == 2);
    CHECK(nccl().all_reduce(pointer(data), pointer(data), 0, ncclInt32, ncclSum, comm, nullptr) ==
          ncclSuccess);
  }
  CHECK(nccl().group_end() == ncclSuccess);
  CHECK(cuda().stream_synchronize(nullptr) == CUDA_SUCCESS);
  for (ncclComm_t comm : comms) CHECK(nccl().comm_destroy(comm) == ncclSuccess);
  CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
}

TEST_CASE("an abort while ranks are missing is told to those who wait and those who come late") {
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  const std::string told = "rank 0 aborted the communicator before ranks 2, 3 had joined";
  const Primary primary(0);
  ncclComm_t patient = begin_join(4, id, 1);
  ncclComm_t leaver = begin_join(4, id, 0);
  CHECK(nccl().comm_abort(leaver) == ncclSuccess);
  CHECK(async_error(patient) == ncclRemoteError);
  CHECK(nccl().get_last_error(patient) == told);
  CHECK(nccl().comm_abort(patient) == ncclSuccess);
  ncclComm_t late = nullptr;
  CHECK(nccl().comm_init_rank(&late, 4, id, 2) == ncclRemoteError);
  CHECK(late == nullptr);
  CHECK(nccl().get_last_error(nullptr) == told);
}

TEST_CASE("an abort ends the blocking join of another rank") {
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  std::thread blocked([&] {
    const Primary primary(0);
    ncclComm_t comm = nullptr;
    CHECK(nccl().comm_init_rank(&comm, 3, id, 1) == ncclRemoteError);
    CHECK(comm == nullptr);
    // Whichever came first, rank 0 has left.
    CHECK(contains(nccl().get_last_error(nullptr), "rank 0 aborted the communicator before ranks"));
  });
  const Primary primary(0);
  CHECK(nccl().comm_abort(begin_join(3, id, 0)) == ncclSuccess);
  blocked.join();
}

TEST_CASE("a choice that is neither blocking nor not") {
  const Primary primary(0);
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  ncclComm_t comm = nullptr;
  CHECK(nccl().comm_init_rank_config(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  CHECK(contains(nccl().get_last_error(nullptr), "config.blocking is 2"));
}
