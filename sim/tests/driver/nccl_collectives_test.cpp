// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover every collective, for 1, 2, 3, 4 and 7 ranks and four types, against plain
// loops on the host. The values are small whole numbers, so every type holds sums and products
// exactly.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/tests/driver/nccl_client.h"

using namespace sim::tests;

namespace {

const int kDevicesSet = setenv("LATHE_SIM_DEVICES", "2", 1);
constexpr int kSizes[] = {1, 2, 3, 4, 7};

struct Bf16 {
  uint16_t bits;
};

template <typename T>
T encode(double value) {
  return static_cast<T>(value);
}
template <>
Bf16 encode<Bf16>(double value) {
  const float wide = static_cast<float>(value);
  uint32_t bits = 0;
  std::memcpy(&bits, &wide, 4);
  CHECK((bits & 0xffff) == 0);  // the test's values are exact
  return {static_cast<uint16_t>(bits >> 16)};
}

template <typename T>
double decode(T value) {
  return static_cast<double>(value);
}
template <>
double decode<Bf16>(Bf16 value) {
  const uint32_t bits = uint32_t{value.bits} << 16;
  float wide = 0;
  std::memcpy(&wide, &bits, 4);
  return wide;
}

template <typename T>
constexpr ncclDataType_t kType = ncclInt32;
template <>
constexpr ncclDataType_t kType<float> = ncclFloat32;
template <>
constexpr ncclDataType_t kType<_Float16> = ncclFloat16;
template <>
constexpr ncclDataType_t kType<Bf16> = ncclBfloat16;

// Returns the value that rank `rank` puts at `at`.
double value_of(int rank, size_t at) { return static_cast<double>((rank * 3 + at * 7) % 5) - 2; }

template <typename T>
std::vector<T> input(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t at = 0; at < count; ++at) values[at] = encode<T>(value_of(rank, at));
  return values;
}

double reduced(int size, size_t at, ncclRedOp_t op) {
  double sum = value_of(0, at);
  for (int rank = 1; rank < size; ++rank) {
    const double next = value_of(rank, at);
    if (op == ncclProd) sum *= next;
    if (op == ncclMax) sum = std::max(sum, next);
    if (op == ncclMin) sum = std::min(sum, next);
    if (op == ncclSum || op == ncclAvg) sum += next;
  }
  return op == ncclAvg ? sum / size : sum;
}

template <typename T>
bool close(double got, double wanted, ncclRedOp_t op) {
  if (op != ncclAvg) return got == wanted;
  if (kType<T> == ncclInt32) return got == std::trunc(wanted);
  return std::fabs(got - wanted) <= std::fabs(wanted) / 256;
}

template <typename T>
size_t wrong(const std::vector<T>& got, const std::function<double(size_t)>& wanted,
             ncclRedOp_t op = ncclSum) {
  size_t count = 0;
  for (size_t at = 0; at < got.size(); ++at) count += !close<T>(decode(got[at]), wanted(at), op);
  return count;
}

// Device buffers of a rank, freed together.
struct Buffers {
  std::vector<CUdeviceptr> all;
  ~Buffers() {
    for (CUdeviceptr address : all) CHECK(cuda().mem_free(address) == CUDA_SUCCESS);
  }
  template <typename T>
  void* fill(const std::vector<T>& values) {
    all.push_back(upload(values));
    return pointer(all.back());
  }
  template <typename T>
  void* empty(size_t count) {
    return fill(std::vector<T>(count, encode<T>(-77)));
  }
};

template <typename T>
std::vector<T> result_of(const Rank& rank, void* buffer, size_t count) {
  rank.synchronize();
  return download<T>(reinterpret_cast<CUdeviceptr>(buffer), count);
}

}  // namespace

TEST_CASE_TEMPLATE("all-reduce, every operation, odd sizes and in place", T, int32_t, float,
                   _Float16, Bf16) {
  for (int size : kSizes) {
    run_ranks(size, [&](Rank& rank) {
      for (ncclRedOp_t op : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
        for (size_t count : {size_t{1}, size_t{1001}}) {
          Buffers buffers;
          void* send = buffers.fill(input<T>(rank.index, count));
          void* recv = op == ncclMax ? send : buffers.empty<T>(count);
          CHECK(nccl().all_reduce(send, recv, count, kType<T>, op, rank.comm, rank.stream) ==
                ncclSuccess);
          const std::vector<T> got = result_of<T>(rank, recv, count);
          CHECK(wrong<T>(
                    got, [&](size_t at) { return reduced(size, at, op); }, op) == 0);
        }
      }
    });
  }
}

TEST_CASE_TEMPLATE("reduce-scatter and reduce", T, int32_t, float, _Float16, Bf16) {
  constexpr size_t kCount = 333;
  for (int size : kSizes) {
    run_ranks(size, [&](Rank& rank) {
      Buffers buffers;
      void* send = buffers.fill(input<T>(rank.index, kCount * static_cast<size_t>(size)));
      void* recv = buffers.empty<T>(kCount);
      CHECK(nccl().reduce_scatter(send, recv, kCount, kType<T>, ncclSum, rank.comm, rank.stream) ==
            ncclSuccess);
      const size_t first = kCount * static_cast<size_t>(rank.index);
      CHECK(wrong<T>(result_of<T>(rank, recv, kCount),
                     [&](size_t at) { return reduced(size, first + at, ncclSum); }) == 0);
      const int root = size / 2;
      void* sum = buffers.empty<T>(kCount);
      CHECK(nccl().reduce(send, sum, kCount, kType<T>, ncclSum, root, rank.comm, rank.stream) ==
            ncclSuccess);
      CHECK(wrong<T>(result_of<T>(rank, sum, kCount), [&](size_t at) {
              return rank.index == root ? reduced(size, at, ncclSum) : -77;
            }) == 0);
    });
  }
}

TEST_CASE_TEMPLATE("all-gather, gather and scatter", T, int32_t, float, _Float16, Bf16) {
  constexpr size_t kCount = 250;
  for (int size : kSizes) {
    run_ranks(size, [&](Rank& rank) {
      const size_t total = kCount * static_cast<size_t>(size);
      const int root = size - 1;
      Buffers buffers;
      void* send = buffers.fill(input<T>(rank.index, kCount));
      void* recv = buffers.empty<T>(total);
      CHECK(nccl().all_gather(send, recv, kCount, kType<T>, rank.comm, rank.stream) == ncclSuccess);
      const auto gathered = [&](size_t at) {
        return value_of(static_cast<int>(at / kCount), at % kCount);
      };
      CHECK(wrong<T>(result_of<T>(rank, recv, total), gathered) == 0);
      void* at_root = buffers.empty<T>(total);
      CHECK(nccl().gather(send, at_root, kCount, kType<T>, root, rank.comm, rank.stream) ==
            ncclSuccess);
      CHECK(wrong<T>(result_of<T>(rank, at_root, total),
                     [&](size_t at) { return rank.index == root ? gathered(at) : -77; }) == 0);
      void* piece = buffers.empty<T>(kCount);
      CHECK(nccl().scatter(at_root, piece, kCount, kType<T>, root, rank.comm, rank.stream) ==
            ncclSuccess);
      CHECK(wrong<T>(result_of<T>(rank, piece, kCount),
                     [&](size_t at) { return value_of(rank.index, at); }) == 0);
    });
  }
}

TEST_CASE_TEMPLATE("broadcast and all-to-all", T, int32_t, float, _Float16, Bf16) {
  constexpr size_t kCount = 129;
  for (int size : kSizes) {
    run_ranks(size, [&](Rank& rank) {
      const size_t total = kCount * static_cast<size_t>(size);
      Buffers buffers;
      void* buffer = buffers.fill(input<T>(rank.index, kCount));
      for (int root = 0; root < size; ++root) {
        void* recv = buffers.empty<T>(kCount);
        CHECK(nccl().broadcast(buffer, recv, kCount, kType<T>, root, rank.comm, rank.stream) ==
              ncclSuccess);
        CHECK(wrong<T>(result_of<T>(rank, recv, kCount),
                       [&](size_t at) { return value_of(root, at); }) == 0);
      }
      void* send = buffers.fill(input<T>(rank.index, total));
      void* recv = buffers.empty<T>(total);
      CHECK(nccl().all_to_all(send, recv, kCount, kType<T>, rank.comm, rank.stream) == ncclSuccess);
      const size_t mine = kCount * static_cast<size_t>(rank.index);
      CHECK(wrong<T>(result_of<T>(rank, recv, total), [&](size_t at) {
              return value_of(static_cast<int>(at / kCount), mine + at % kCount);
            }) == 0);
      CHECK(nccl().bcast(buffer, kCount, kType<T>, size - 1, rank.comm, rank.stream) ==
            ncclSuccess);
      CHECK(wrong<T>(result_of<T>(rank, buffer, kCount),
                     [&](size_t at) { return value_of(size - 1, at); }) == 0);
    });
  }
}

TEST_CASE("half types are summed in float32 and rounded once") {
  run_ranks(3, [](Rank& rank) {  // step by step, 2048 + 1 would stay 2048
    Buffers buffers;
    const std::vector<_Float16> mine = {static_cast<_Float16>(rank.index == 0 ? 2048 : 1)};
    void* buffer = buffers.fill(mine);
    CHECK(nccl().all_reduce(buffer, buffer, 1, ncclFloat16, ncclSum, rank.comm, rank.stream) ==
          ncclSuccess);
    CHECK(static_cast<float>(result_of<_Float16>(rank, buffer, 1)[0]) == 2050.0f);
  });
}

TEST_CASE("more than one chunk, back to back, without waiting in between") {
  constexpr size_t kCount = 300000;
  run_ranks(3, [](Rank& rank) {
    Buffers buffers;
    void* buffer = buffers.fill(std::vector<float>(kCount, 1.0f));
    for (int step = 0; step < 4; ++step) {
      CHECK(nccl().all_reduce(buffer, buffer, kCount, ncclFloat32, ncclSum, rank.comm,
                              rank.stream) == ncclSuccess);
    }
    CHECK(wrong<float>(result_of<float>(rank, buffer, kCount), [](size_t) { return 81; }) == 0);
  });
}
