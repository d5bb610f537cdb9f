// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These figures are of the device as a whole: launches, starts of blocks, and its clock.
#pragma once
#include <chrono>

#include "units_measure.cuh"

namespace units {

__global__ void nothing() {}
__global__ void nothing_early() {
  asm volatile("griddepcontrol.launch_dependents;\n griddepcontrol.wait;" ::: "memory");
}

template <class F>
double microseconds_on_host(F act) {
  CHECKED(cudaDeviceSynchronize());
  const auto begin = std::chrono::steady_clock::now();
  act();
  CHECKED(cudaDeviceSynchronize());
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
  return time.count();
}

inline void launch_early(cudaStream_t stream, bool early) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = early ? 1 : 0;
  CHECKED(cudaLaunchKernelEx(&config, early ? nothing_early : nothing));
}

// Microseconds of each of `nodes` kernels of a graph, one after the other.
inline double graph_time(int nodes, bool early) {
  cudaStream_t stream;
  CHECKED(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t made;
  CHECKED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < nodes; ++k) launch_early(stream, early);
  CHECKED(cudaStreamEndCapture(stream, &graph));
  CHECKED(cudaGraphInstantiate(&made, graph, 0));
  CHECKED(cudaGraphLaunch(made, stream));
  const int launches = times(16);
  const double time = microseconds_on_host([=] {
    for (int k = 0; k < launches; ++k) CHECKED(cudaGraphLaunch(made, stream));
  });
  CHECKED(cudaGraphExecDestroy(made));
  CHECKED(cudaGraphDestroy(graph));
  CHECKED(cudaStreamDestroy(stream));
  return time / launches / nodes;
}

// Nanoseconds between the starts of two blocks of a multiprocessor, when blocks do nothing.
inline double block_time(int threads, int shared) {
  const auto grids = [=](int each) {
    return milliseconds([=] {
      for (int k = 0; k < times(16); ++k) {
        start({room.processors * each, threads, shared}, nothing);
      }
    });
  };
  const int each = room.tiny ? 1 : 64;
  return (grids(2 * each) - grids(each)) / times(16) / each * 1e6;
}

__global__ void busy(unsigned long long* cycles, uint32_t* sink, long long until) {
  float x = threadIdx.x;
  uint64_t began, ended;
  Watch watch;
  watch.start();
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
  while (clock64() - watch.begin < until) {
#pragma unroll
    for (int k = 0; k < 64; ++k) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x));
  }
  watch.stop(cycles);
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ended));
  if (threadIdx.x == 0) cycles[gridDim.x + blockIdx.x] = ended - began;
  if (x == 77.125f) *sink = 1;
}

inline double clock_rate() {
  start({room.processors, 512}, busy, room.cycles, room.sink, room.tiny ? 20'000LL : 9'000'000LL);
  CHECKED(cudaGetLastError());
  CHECKED(cudaDeviceSynchronize());
  std::vector<unsigned long long> both(2 * room.processors);
  CHECKED(
      cudaMemcpy(both.data(), room.cycles, both.size() * sizeof both[0], cudaMemcpyDeviceToHost));
  return static_cast<double>(both[0]) / static_cast<double>(both[room.processors]);
}

inline void measure_device() {
  figure("device", "clock", "GHz", [] { return clock_rate(); });
  for (const bool early : {false, true}) {
    const std::string how = early ? "; programmatic dependent launch" : "";
    figure("device", "launch in a stream" + how, "us", [=] {
      const int launches = room.tiny ? 4 : 1000;
      return microseconds_on_host([=] {
               for (int k = 0; k < launches; ++k) launch_early(nullptr, early);
             }) /
             launches;
    });
    figure("device", "node of a graph of 100" + how, "us",
           [=] { return graph_time(room.tiny ? 4 : 100, early); });
  }
  figure("device", "kernel and synchronisation", "us",
         [] { return microseconds_on_host([] { launch_early(nullptr, false); }); });
  figure("device", "start of a block of 128 threads", "ns a block and SM",
         [] { return block_time(128, 0); });
  figure("device", "start of a block of 384 threads", "ns a block and SM",
         [] { return block_time(384, 0); });
  figure("device", "start of a block of 384 threads with 200 KB", "ns a block and SM",
         [] { return block_time(384, 200 * 1024); });
}

}  // namespace units
