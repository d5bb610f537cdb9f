// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Measures on a GPU what the simulator's clock is made of: latencies and rates of units, barriers
// and memory, as sim/tests/clock has them. One row of CSV for each figure:
//
//   unit,what,value,unit_of_value,spread       the median of seven, and half of their range
//
// `units math tensor` measures those groups alone, and `--tiny` repeats next to nothing, which is
// to find mistakes in the simulator. A figure that cannot be taken is `failed`, with the error on
// standard error.
#include <cstring>

#include "units_barriers.cuh"
#include "units_beside.cuh"
#include "units_copies.cuh"
#include "units_device.cuh"
#include "units_math.cuh"
#include "units_memory.cuh"
#include "units_reductions.cuh"
#include "units_tensor.cuh"

namespace {

struct Group {
  const char* name;
  void (*measure)();
};
const Group kGroups[] = {
    {"device", units::measure_device},     {"math", units::measure_math},
    {"shared", units::measure_shared},     {"tensor", units::measure_tensor},
    {"barriers", units::measure_barriers}, {"memory", units::measure_memory},
    {"copies", units::measure_copies},     {"beside", units::measure_beside},
    {"reductions", units::measure_reductions},
};

bool wanted(const Group& group, int argc, char** argv) {
  bool any = false;
  for (int k = 1; k < argc; ++k) {
    if (argv[k][0] == '-') continue;
    if (std::strcmp(argv[k], group.name) == 0) return true;
    any = true;
  }
  return !any;
}

void prepare() {
  using units::room;
  cudaDeviceProp properties;
  CHECKED(cudaGetDeviceProperties(&properties, 0));
  room.processors = properties.multiProcessorCount;
  std::fprintf(stderr, "%s, %d multiprocessors\n", properties.name, room.processors);
  room.bytes = size_t{room.tiny ? 32u : 512u} << 20;
  CHECKED(cudaMalloc(&room.cycles, 65536));
  CHECKED(cudaMalloc(&room.sink, 65536));
  CHECKED(cudaMalloc(&room.from, room.bytes));
  CHECKED(cudaMalloc(&room.to, room.bytes));
  CHECKED(cudaMemset(room.sink, 0, 65536));
  CHECKED(cudaMemset(room.from, 0, room.bytes));
  CHECKED(cudaMemset(room.to, 0, room.bytes));
}

}  // namespace

int main(int argc, char** argv) {
  for (int k = 1; k < argc; ++k) {
    if (std::strcmp(argv[k], "--tiny") == 0) units::room.tiny = true;
  }
  try {
    prepare();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::printf("unit,what,value,unit_of_value,spread\n");
  for (const Group& group : kGroups) {
    if (!wanted(group, argc, argv)) continue;
    try {
      group.measure();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", group.name, error.what());
    }
  }
  const cudaError_t left = cudaDeviceSynchronize();  // of an error that ended the context
  if (left != cudaSuccess) std::fprintf(stderr, "%s\n", cudaGetErrorString(left));
  return left == cudaSuccess ? 0 : 1;
}
