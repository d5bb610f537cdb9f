// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover sends and receives, groups, splits, and order with respect to streams.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "sim/tests/driver/nccl_client.h"

using namespace sim::tests;

namespace {

const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);

std::vector<int> iota(int first, size_t count) {
  std::vector<int> values(count);
  for (size_t at = 0; at < count; ++at) values[at] = first + static_cast<int>(at);
  return values;
}

}  // namespace

TEST_CASE("a ring of grouped sends and receives") {
  for (int size : {1, 2, 3, 4, 7}) {
    run_ranks(size, [size](Rank& rank) {
      constexpr size_t kCount = 500;
      CUdeviceptr mine = upload(iota(rank.index * 1000, kCount));
      CUdeviceptr next = allocate(kCount * 4);
      for (int step = 0; step < size; ++step) {  // after `size` hops everyone's own is back
        CHECK(nccl().group_start() == ncclSuccess);
        CHECK(nccl().send(pointer(mine), kCount, ncclInt32, (rank.index + 1) % size, rank.comm,
                          rank.stream) == ncclSuccess);
        CHECK(nccl().recv(pointer(next), kCount, ncclInt32, (rank.index + size - 1) % size,
                          rank.comm, rank.stream) == ncclSuccess);
        CHECK(nccl().group_end() == ncclSuccess);
        std::swap(mine, next);
        if (step != 0) continue;
        rank.synchronize();
        CHECK(download<int>(mine, kCount) == iota((rank.index + size - 1) % size * 1000, kCount));
      }
      rank.synchronize();
      CHECK(download<int>(mine, kCount) == iota(rank.index * 1000, kCount));
      CHECK(cuda().mem_free(mine) == CUDA_SUCCESS);
      CHECK(cuda().mem_free(next) == CUDA_SUCCESS);
    });
  }
}

TEST_CASE("messages between two ranks keep their order, with different sizes") {
  run_ranks(2, [](Rank& rank) {
    const CUdeviceptr data = upload(rank.index == 0 ? iota(0, 60) : std::vector<int>(60, -1));
    size_t first = 0;
    for (size_t count : {size_t{10}, size_t{20}, size_t{30}}) {
      void* at = pointer(data + first * 4);
      CHECK((rank.index == 0
                 ? nccl().send(at, count, ncclInt32, 1, rank.comm, rank.stream)
                 : nccl().recv(at, count, ncclInt32, 0, rank.comm, rank.stream)) == ncclSuccess);
      first += count;
    }
    rank.synchronize();
    CHECK(download<int>(data, 60) == iota(0, 60));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("an operation comes after the work before it in the stream and before what follows") {
  run_ranks(2, [](Rank& rank) {
    std::vector<int> list;
    constexpr size_t kCount = 1 << 16;
    const CUdeviceptr data = allocate(kCount * 4), copy = allocate(kCount * 4);
    struct Pause {
      static void CUDA_CB wait(void*) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    };
    CHECK(cuda().launch_host_func(rank.stream, Pause::wait, nullptr) == CUDA_SUCCESS);
    CHECK(cuda().memset_d32_async(data, static_cast<unsigned>(rank.index + 1), kCount,
                                  rank.stream) == CUDA_SUCCESS);
    CHECK(nccl().all_reduce(pointer(data), pointer(data), kCount, ncclInt32, ncclSum, rank.comm,
                            rank.stream) == ncclSuccess);
    CHECK(cuda().memcpy_dtod_async(copy, data, kCount * 4, rank.stream) == CUDA_SUCCESS);
    CHECK(cuda().memset_d32_async(data, 9, kCount, rank.stream) == CUDA_SUCCESS);
    rank.synchronize();
    CHECK(download<int>(copy, kCount) == std::vector<int>(kCount, 3));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
    CHECK(cuda().mem_free(copy) == CUDA_SUCCESS);
  });
}

TEST_CASE("calls return although the partner comes later") {
  std::atomic<bool> returned{false};
  run_ranks(2, [&](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, rank.index + 1));
    if (rank.index == 1) {
      while (!returned) std::this_thread::yield();
    }
    CHECK(nccl().all_reduce(pointer(data), pointer(data), 4, ncclInt32, ncclSum, rank.comm,
                            rank.stream) == ncclSuccess);
    if (rank.index == 0) {
      CHECK(cuda().stream_query(rank.stream) == CUDA_ERROR_NOT_READY);
      returned = true;
    }
    rank.synchronize();
    CHECK(download<int>(data, 4) == std::vector<int>(4, 3));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("one thread drives several ranks on one device through a group") {
  REQUIRE(cuda().init(0) == CUDA_SUCCESS);
  const Primary primary(0);
  const int devices[] = {0, 0, 0};
  ncclComm_t comms[3] = {};
  REQUIRE(nccl().comm_init_all(comms, 3, devices) == ncclSuccess);
  std::vector<CUdeviceptr> data;
  for (int rank = 0; rank < 3; ++rank) data.push_back(upload(std::vector<int>(8, rank + 1)));
  CHECK(nccl().group_start() == ncclSuccess);
  for (size_t rank = 0; rank < 3; ++rank) {  // all in the legacy stream
    CHECK(nccl().all_reduce(pointer(data[rank]), pointer(data[rank]), 8, ncclInt32, ncclSum,
                            comms[rank], nullptr) == ncclSuccess);
  }
  CHECK(nccl().group_end() == ncclSuccess);
  CHECK(cuda().stream_synchronize(nullptr) == CUDA_SUCCESS);
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(download<int>(data[rank], 8) == std::vector<int>(8, 6));
    CHECK(cuda().mem_free(data[rank]) == CUDA_SUCCESS);
    CHECK(nccl().comm_destroy(comms[rank]) == ncclSuccess);
  }
}

TEST_CASE("several communicators are made in one group by one thread") {
  REQUIRE(cuda().init(0) == CUDA_SUCCESS);
  const Primary primary(0);
  ncclUniqueId id;
  REQUIRE(nccl().get_unique_id(&id) == ncclSuccess);
  ncclComm_t comms[2] = {};
  CHECK(nccl().group_start() == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  CHECK(nccl().comm_init_rank_config(&comms[1], 2, id, 1, &config) == ncclSuccess);
  CHECK(nccl().comm_init_rank(&comms[0], 2, id, 0) == ncclSuccess);
  CHECK(nccl().group_end() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    int count = 0, index = -1, device = -1;
    CHECK(nccl().comm_count(comms[rank], &count) == ncclSuccess);
    CHECK(nccl().comm_user_rank(comms[rank], &index) == ncclSuccess);
    CHECK(nccl().comm_cu_device(comms[rank], &device) == ncclSuccess);
    CHECK(count == 2);
    CHECK(index == rank);
    CHECK(device == 0);
    CHECK(nccl().comm_destroy(comms[rank]) == ncclSuccess);
  }
}

TEST_CASE("thirty-two ranks meet, pass on round a ring and sum") {
  run_ranks(32, [](Rank& rank) {
    const CUdeviceptr mine = upload(std::vector<int>(3, rank.index));
    const CUdeviceptr theirs = upload(std::vector<int>(3, -1));
    const int next = (rank.index + 1) % 32, previous = (rank.index + 31) % 32;
    CHECK(nccl().group_start() == ncclSuccess);
    CHECK(nccl().send(pointer(mine), 3, ncclInt32, next, rank.comm, rank.stream) == ncclSuccess);
    CHECK(nccl().recv(pointer(theirs), 3, ncclInt32, previous, rank.comm, rank.stream) ==
          ncclSuccess);
    CHECK(nccl().group_end() == ncclSuccess);
    CHECK(nccl().all_reduce(pointer(mine), pointer(mine), 3, ncclInt32, ncclSum, rank.comm,
                            rank.stream) == ncclSuccess);
    rank.synchronize();
    CHECK(download<int>(theirs, 3) == std::vector<int>(3, previous));
    CHECK(download<int>(mine, 3) == std::vector<int>(3, 496));
    CHECK(cuda().mem_free(mine) == CUDA_SUCCESS);
    CHECK(cuda().mem_free(theirs) == CUDA_SUCCESS);
  });
}

TEST_CASE("a split by parity, in reverse order") {
  run_ranks(7, [](Rank& rank) {
    ncclComm_t part = nullptr;
    const int color = rank.index == 6 ? NCCL_SPLIT_NOCOLOR : rank.index % 2;
    CHECK(nccl().comm_split(rank.comm, color, -rank.index, &part, nullptr) == ncclSuccess);
    if (rank.index == 6) {
      CHECK(part == nullptr);
      return;
    }
    int index = -1, count = 0;
    CHECK(nccl().comm_user_rank(part, &index) == ncclSuccess);
    CHECK(nccl().comm_count(part, &count) == ncclSuccess);
    CHECK(count == 3);
    CHECK(index == 2 - rank.index / 2);
    const CUdeviceptr data = upload(std::vector<int>(3, rank.index));
    CHECK(nccl().all_reduce(pointer(data), pointer(data), 3, ncclInt32, ncclSum, part,
                            rank.stream) == ncclSuccess);
    rank.synchronize();
    CHECK(download<int>(data, 3) == std::vector<int>(3, rank.index % 2 == 0 ? 6 : 9));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
    CHECK(nccl().comm_destroy(part) == ncclSuccess);
  });
}

TEST_CASE("memory and small calls") {
  const Primary primary(0);
  int version = 0;
  CHECK(nccl().get_version(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION(2, 28, 9));
  CHECK(std::string(nccl().get_error_string(ncclInvalidUsage)) == "invalid usage");
  void* memory = nullptr;
  CHECK(nccl().mem_alloc(&memory, 100) == ncclSuccess);
  CHECK(cuda().memset_d8(reinterpret_cast<CUdeviceptr>(memory), 1, 100) == CUDA_SUCCESS);
  CHECK(nccl().mem_free(memory) == ncclSuccess);
}

TEST_CASE("each hop's messages and bytes are written down, for those who ask") {
  std::string path = (std::filesystem::temp_directory_path() / "lathe-traffic-XXXXXX").string();
  const int descriptor = mkstemp(path.data());
  REQUIRE(descriptor >= 0);
  close(descriptor);
  setenv("LATHE_SIM_NCCL_COUNTERS", path.c_str(), 1);
  constexpr int kSize = 3;
  run_ranks(kSize, [](Rank& rank) {
    const CUdeviceptr out = upload(iota(0, 40)), in = allocate(160), sum = allocate(160);
    const int next = (rank.index + 1) % kSize, before = (rank.index + kSize - 1) % kSize;
    CHECK(nccl().group_start() == ncclSuccess);
    for (const size_t count : {size_t{30}, size_t{10}}) {
      CHECK(nccl().send(pointer(out), count, ncclInt32, next, rank.comm, rank.stream) ==
            ncclSuccess);
      CHECK(nccl().recv(pointer(in), count, ncclInt32, before, rank.comm, rank.stream) ==
            ncclSuccess);
    }
    CHECK(nccl().group_end() == ncclSuccess);
    CHECK(nccl().all_reduce(pointer(out), pointer(sum), 40, ncclInt32, ncclSum, rank.comm,
                            rank.stream) == ncclSuccess);
    rank.synchronize();
    for (const CUdeviceptr each : {out, in, sum}) CHECK(cuda().mem_free(each) == CUDA_SUCCESS);
  });
  unsetenv("LATHE_SIM_NCCL_COUNTERS");
  std::ifstream file(path);
  std::multiset<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.insert(line);
  std::remove(path.c_str());
  REQUIRE(lines.size() == 2 * kSize);
  for (int rank = 0; rank < kSize; ++rank) {
    const std::string head = "{\"rank\":" + std::to_string(rank) + ",\"world\":3,\"hop\":";
    CHECK(lines.count(head + "0,\"sends\":2,\"receives\":2,\"bytes_sent\":160,"
                             "\"bytes_received\":160,\"collectives\":0,\"collective_bytes\":0}") ==
          1);
    CHECK(lines.count(head + "1,\"sends\":0,\"receives\":0,\"bytes_sent\":0,"
                             "\"bytes_received\":0,\"collectives\":1,\"collective_bytes\":160}") ==
          1);
  }
}
