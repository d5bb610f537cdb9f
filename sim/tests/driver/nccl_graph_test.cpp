// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover operations in graphs: captured once, replayed with other contents, beside
// calls, beside ranks that capture nothing, and when partners or communicators are gone.
#include <chrono>

#include "sim/tests/driver/nccl_client.h"

using namespace sim::tests;

namespace {

const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);
const int kTimeoutSet = setenv("LATHE_SIM_NCCL_TIMEOUT_MS", "1500", 1);

// A graph of what `body` puts into the rank's stream.
class Captured {
 public:
  Captured(Rank& rank, const std::function<void()>& body) : stream_(rank.stream) {
    CHECK(cuda().stream_begin_capture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) ==
          CUDA_SUCCESS);
    body();
    CUgraph graph = nullptr;
    REQUIRE(cuda().stream_end_capture(stream_, &graph) == CUDA_SUCCESS);
    CHECK(cuda().graph_instantiate_with_flags(&exec_, graph, 0) == CUDA_SUCCESS);
    CHECK(cuda().graph_destroy(graph) == CUDA_SUCCESS);
  }
  ~Captured() { CHECK(cuda().graph_exec_destroy(exec_) == CUDA_SUCCESS); }
  Captured(const Captured&) = delete;
  void launch() const { CHECK(cuda().graph_launch(exec_, stream_) == CUDA_SUCCESS); }

 private:
  CUstream stream_;
  CUgraphExec exec_ = nullptr;
};

ncclResult_t sum(const Rank& rank, CUdeviceptr data, size_t count) {
  return nccl().all_reduce(pointer(data), pointer(data), count, ncclInt32, ncclSum, rank.comm,
                           rank.stream);
}

// Sends `from` to the next rank and receives `to` from the one before.
void pass_on(const Rank& rank, CUdeviceptr from, CUdeviceptr to, size_t count) {
  CHECK(nccl().group_start() == ncclSuccess);
  CHECK(nccl().send(pointer(from), count, ncclInt32, (rank.index + 1) % rank.size, rank.comm,
                    rank.stream) == ncclSuccess);
  CHECK(nccl().recv(pointer(to), count, ncclInt32, (rank.index + rank.size - 1) % rank.size,
                    rank.comm, rank.stream) == ncclSuccess);
  CHECK(nccl().group_end() == ncclSuccess);
}

void put(const Rank& rank, CUdeviceptr at, int value, size_t count) {
  CHECK(cuda().memset_d32_async(at, static_cast<unsigned>(value), count, rank.stream) ==
        CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("captured once, replayed with other contents") {
  for (int size : {1, 2, 3, 4}) {
    run_ranks(size, [size](Rank& rank) {
      const CUdeviceptr data = allocate(16), next = allocate(16);
      {
        const Captured graph(rank, [&] {
          CHECK(sum(rank, data, 4) == ncclSuccess);
          pass_on(rank, data, next, 4);
          CHECK(sum(rank, next, 4) == ncclSuccess);
        });
        for (int round = 0; round < 4; ++round) {
          put(rank, data, rank.index + round, 4);
          graph.launch();
          rank.synchronize();
          const int total = size * (size - 1) / 2 + size * round;
          CHECK(download<int>(data, 4) == std::vector<int>(4, total));
          CHECK(download<int>(next, 4) == std::vector<int>(4, total * size));
        }
      }
      CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
      CHECK(cuda().mem_free(next) == CUDA_SUCCESS);
    });
  }
}

TEST_CASE("replays and calls keep the order of their stream, without a wait between them") {
  run_ranks(3, [](Rank& rank) {
    const CUdeviceptr a = allocate(16), b = allocate(16);
    put(rank, a, rank.index, 4);
    const Captured graph(rank, [&] { pass_on(rank, a, b, 4); });
    for (int round = 0; round < 5; ++round) {
      graph.launch();          // a to b, one rank on
      pass_on(rank, b, a, 4);  // b to a, one more
    }
    rank.synchronize();
    // Two on each round, ten in all: what was of the rank before, three times around.
    CHECK(download<int>(a, 4) == std::vector<int>(4, (rank.index + 2) % 3));
    CHECK(cuda().mem_free(a) == CUDA_SUCCESS);
    CHECK(cuda().mem_free(b) == CUDA_SUCCESS);
  });
}

TEST_CASE("a rank that replays meets one that calls") {
  run_ranks(2, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, rank.index + 1));
    if (rank.index == 0) {
      const Captured graph(rank, [&] { CHECK(sum(rank, data, 4) == ncclSuccess); });
      for (int round = 0; round < 3; ++round) graph.launch();
      rank.synchronize();
    } else {
      for (int round = 0; round < 3; ++round) CHECK(sum(rank, data, 4) == ncclSuccess);
      rank.synchronize();
    }
    CHECK(download<int>(data, 4) == std::vector<int>(4, 3 * 2 * 2));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("branches of a graph wait for their own partners alone") {
  // Two communicators in two branches, three operations each: in whatever order a rank comes to
  // the branches, neither may hold up the other.
  for (int attempt = 0; attempt < 8; ++attempt) {
    run_ranks(2, [](Rank& rank) {
      Rank other = rank;
      CHECK(nccl().comm_split(rank.comm, 0, rank.index, &other.comm, nullptr) == ncclSuccess);
      CHECK(cuda().stream_create(&other.stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
      const CUdeviceptr a = allocate(16), b = allocate(16);
      CUevent fork = nullptr, join = nullptr;
      for (CUevent* event : {&fork, &join}) {
        CHECK(cuda().event_create(event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
      }
      put(rank, a, 1, 4);
      put(rank, b, 2, 4);
      {
        const Captured graph(rank, [&] {
          CHECK(cuda().event_record(fork, rank.stream) == CUDA_SUCCESS);
          CHECK(cuda().stream_wait_event(other.stream, fork, 0) == CUDA_SUCCESS);
          for (int step = 0; step < 3; ++step) {
            CHECK(sum(rank, a, 4) == ncclSuccess);
            CHECK(sum(other, b, 4) == ncclSuccess);
          }
          CHECK(cuda().event_record(join, other.stream) == CUDA_SUCCESS);
          CHECK(cuda().stream_wait_event(rank.stream, join, 0) == CUDA_SUCCESS);
        });
        graph.launch();
        rank.synchronize();
      }
      CHECK(download<int>(a, 4) == std::vector<int>(4, 8));
      CHECK(download<int>(b, 4) == std::vector<int>(4, 16));
      for (CUevent event : {fork, join}) CHECK(cuda().event_destroy(event) == CUDA_SUCCESS);
      CHECK(nccl().comm_destroy(other.comm) == ncclSuccess);
      CHECK(cuda().stream_destroy(other.stream) == CUDA_SUCCESS);
      CHECK(cuda().mem_free(a) == CUDA_SUCCESS);
      CHECK(cuda().mem_free(b) == CUDA_SUCCESS);
    });
  }
}

TEST_CASE("a graph that outlives its communicator hangs nobody") {
  run_ranks(2, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 5));
    const Captured graph(rank, [&] { CHECK(sum(rank, data, 4) == ncclSuccess); });
    graph.launch();
    rank.synchronize();
    CHECK(nccl().comm_destroy(rank.comm) == ncclSuccess);
    rank.comm = nullptr;
    for (int round = 0; round < 3; ++round) graph.launch();
    rank.synchronize();
    CHECK(download<int>(data, 4) == std::vector<int>(4, 10));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("a graph that is destroyed while it runs runs to its end") {
  run_ranks(2, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 1));
    {
      const Captured graph(rank, [&] { CHECK(sum(rank, data, 4) == ncclSuccess); });
      graph.launch();
      graph.launch();
    }
    CHECK(sum(rank, data, 4) == ncclSuccess);
    rank.synchronize();
    CHECK(download<int>(data, 4) == std::vector<int>(4, 8));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("a partner that does not replay is told, and the replay goes on") {
  run_ranks(2, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 1));
    const Captured graph(rank, [&] { CHECK(sum(rank, data, 4) == ncclSuccess); });
    if (rank.index == 0) {
      graph.launch();
      rank.synchronize();
    }
    ncclResult_t error = ncclSuccess;
    while (error == ncclSuccess) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      CHECK(nccl().comm_get_async_error(rank.comm, &error) == ncclSuccess);
    }
    CHECK(error == ncclRemoteError);
    const std::string text = nccl().get_last_error(rank.comm);
    INFO(text);
    CHECK(contains(text, "1500 ms for rank 1; rank 1 has called nothing"));
    graph.launch();  // of a communicator that failed
    rank.synchronize();
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}

TEST_CASE("captures come and go: more of them than there is room for at once") {
  run_ranks(1, [](Rank& rank) {
    const CUdeviceptr data = upload(std::vector<int>(4, 1));
    for (int round = 0; round < 1100; ++round) {
      const Captured graph(rank, [&] { CHECK(sum(rank, data, 4) == ncclSuccess); });
      if (round % 100 == 0) graph.launch();
    }
    rank.synchronize();
    CHECK(download<int>(data, 4) == std::vector<int>(4, 1));
    CHECK(cuda().mem_free(data) == CUDA_SUCCESS);
  });
}
