// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file opens the NCCL library under test and runs ranks as threads.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "abi/nccl.h"
#include "sim/tests/driver/driver_client.h"

#define SIM_TEST_NCCL(X)                           \
  X(get_version, ncclGetVersion)                   \
  X(get_unique_id, ncclGetUniqueId)                \
  X(comm_init_rank, ncclCommInitRank)              \
  X(comm_init_rank_config, ncclCommInitRankConfig) \
  X(comm_init_all, ncclCommInitAll)                \
  X(comm_split, ncclCommSplit)                     \
  X(comm_finalize, ncclCommFinalize)               \
  X(comm_destroy, ncclCommDestroy)                 \
  X(comm_abort, ncclCommAbort)                     \
  X(comm_get_async_error, ncclCommGetAsyncError)   \
  X(comm_count, ncclCommCount)                     \
  X(comm_cu_device, ncclCommCuDevice)              \
  X(comm_user_rank, ncclCommUserRank)              \
  X(get_error_string, ncclGetErrorString)          \
  X(get_last_error, ncclGetLastError)              \
  X(group_start, ncclGroupStart)                   \
  X(group_end, ncclGroupEnd)                       \
  X(send, ncclSend)                                \
  X(recv, ncclRecv)                                \
  X(all_gather, ncclAllGather)                     \
  X(reduce_scatter, ncclReduceScatter)             \
  X(all_reduce, ncclAllReduce)                     \
  X(broadcast, ncclBroadcast)                      \
  X(bcast, ncclBcast)                              \
  X(reduce, ncclReduce)                            \
  X(all_to_all, ncclAlltoAll)                      \
  X(gather, ncclGather)                            \
  X(scatter, ncclScatter)                          \
  X(mem_alloc, ncclMemAlloc)                       \
  X(mem_free, ncclMemFree)                         \
  X(comm_register, ncclCommRegister)               \
  X(comm_deregister, ncclCommDeregister)

namespace sim::tests {

struct Nccl {
#define SIM_TEST_MEMBER(name, symbol) decltype(&symbol) name = nullptr;
  SIM_TEST_NCCL(SIM_TEST_MEMBER)
#undef SIM_TEST_MEMBER
};

inline const Nccl& nccl() {
  static const Nccl table = [] {
    cuda();  // first, so that the library finds this driver
    Nccl made;
    void* library = dlopen(SIM_LIBRARY_DIR "/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      MESSAGE(std::string(dlerror()));
      std::abort();
    }
#define SIM_TEST_LOAD(name, symbol) \
  made.name = reinterpret_cast<decltype(made.name)>(dlsym(library, #symbol));
    SIM_TEST_NCCL(SIM_TEST_LOAD)
#undef SIM_TEST_LOAD
    return made;
  }();
  return table;
}

// A Rank is one rank as a body of a test sees it.
struct Rank {
  int index = 0, size = 0;
  ncclComm_t comm = nullptr;
  CUstream stream = nullptr;
  void synchronize() const { CHECK(cuda().stream_synchronize(stream) == CUDA_SUCCESS); }
};

// Runs the body on `size` threads, one rank each, spread over the devices there are. The body may
// set `comm` or `stream` to null if it ended them itself.
inline void run_ranks(int size, const std::function<void(Rank&)>& body) {
  nccl();
  REQUIRE(cuda().init(0) == CUDA_SUCCESS);
  int devices = 0;
  REQUIRE(cuda().device_get_count(&devices) == CUDA_SUCCESS);
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int index = 0; index < size; ++index) {
    threads.emplace_back([&, index] {
      const Primary primary(index % devices);
      Rank rank;
      rank.index = index;
      rank.size = size;
      CHECK(nccl().comm_init_rank(&rank.comm, size, id, index) == ncclSuccess);
      CHECK(cuda().stream_create(&rank.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
      if (rank.comm != nullptr) body(rank);
      if (rank.comm != nullptr) CHECK(nccl().comm_destroy(rank.comm) == ncclSuccess);
      if (rank.stream != nullptr) CHECK(cuda().stream_destroy(rank.stream) == CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace sim::tests
