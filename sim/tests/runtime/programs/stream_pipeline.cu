// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Chunks of pinned memory go through two streams: copied there, scaled and summed, copied back, and
// added up on the host. Memory comes from the streams, events order them. The same work is then
// captured as a graph and launched several times.
#include <vector>

#include "check.h"

constexpr int kChunks = 6, kCount = 4000, kThreads = 256;

__global__ void scale(const float* x, float* y, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}

__global__ void sum_into(const float* y, int n, float* total) {
  __shared__ float parts[kThreads];
  float mine = 0;
  for (int i = threadIdx.x; i < n; i += kThreads) mine += y[i];
  parts[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *total += parts[0];
}

struct Host {
  const float* sums;  // one for each chunk
  double total;
  int calls;
};

void add_up(void* data) {
  Host& host = *static_cast<Host*>(data);
  for (int chunk = 0; chunk < kChunks; ++chunk) host.total += host.sums[chunk];
  ++host.calls;
}

struct Chunks {
  float *x, *y, *sums;  // pinned: kChunks * kCount, kChunks * kCount, kChunks
};

// The work of all chunks, in `streams`; what comes after it in streams[0] comes after all of it.
void enqueue(const Chunks& here, const Chunks& there, cudaStream_t (&streams)[2], cudaEvent_t start,
             cudaEvent_t end) {
  constexpr size_t kBytes = kCount * sizeof(float);
  CHECK(cudaMemsetAsync(there.sums, 0, kChunks * sizeof(float), streams[0]));
  CHECK(cudaEventRecord(start, streams[0]));
  CHECK(cudaStreamWaitEvent(streams[1], start, 0));
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    cudaStream_t stream = streams[chunk % 2];
    const int at = chunk * kCount;
    CHECK(cudaMemcpyAsync(there.x + at, here.x + at, kBytes, cudaMemcpyHostToDevice, stream));
    scale<<<(kCount + kThreads - 1) / kThreads, kThreads, 0, stream>>>(there.x + at, there.y + at,
                                                                       kCount, chunk + 1);
    CHECK(cudaGetLastError());
    sum_into<<<1, kThreads, 0, stream>>>(there.y + at, kCount, there.sums + chunk);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpyAsync(here.y + at, there.y + at, kBytes, cudaMemcpyDeviceToHost, stream));
  }
  CHECK(cudaEventRecord(end, streams[1]));
  CHECK(cudaStreamWaitEvent(streams[0], end, 0));
  CHECK(cudaMemcpyAsync(here.sums, there.sums, kChunks * sizeof(float), cudaMemcpyDeviceToHost,
                        streams[0]));
}

double wrong_elements(const Chunks& here) {
  int wrong = 0;
  for (int i = 0; i < kChunks * kCount; ++i) wrong += here.y[i] != here.x[i] * (i / kCount + 1);
  return wrong;
}

struct Pipeline {
  cudaStream_t streams[2];
  cudaEvent_t start, end;
  Chunks here = {}, there = {};
  double expected = 0;  // the sum of all chunks
};

void set_up(Pipeline& p) {
  constexpr size_t kBytes = kChunks * kCount * sizeof(float);
  CHECK(cudaStreamCreateWithFlags(&p.streams[0], cudaStreamNonBlocking));
  int least = 0, greatest = 0;
  CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(cudaStreamCreateWithPriority(&p.streams[1], cudaStreamNonBlocking, greatest));
  CHECK(cudaEventCreate(&p.start));
  CHECK(cudaEventCreateWithFlags(&p.end, cudaEventDisableTiming));
  CHECK(cudaMallocHost(&p.here.x, kBytes));
  CHECK(cudaHostAlloc(&p.here.y, kBytes, cudaHostAllocDefault));
  CHECK(cudaMallocHost(&p.here.sums, kChunks * sizeof(float)));
  unsigned state = 3;
  for (int i = 0; i < kChunks * kCount; ++i) {
    p.here.x[i] = next_number(&state) % 16;
    p.expected += p.here.x[i] * (i / kCount + 1);
  }
  // Both streams use the memory: the second one waits for an event that comes after the allocation.
  cudaMemPool_t pool;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = ~0ull;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  CHECK(cudaMallocAsync(&p.there.x, kBytes, p.streams[0]));
  CHECK(cudaMallocAsync(&p.there.y, kBytes, p.streams[0]));
  CHECK(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&p.there.sums), kChunks * sizeof(float),
                                pool, p.streams[0]));
}

void tear_down(Pipeline& p) {
  for (float* memory : {p.there.x, p.there.y, p.there.sums}) {
    CHECK(cudaFreeAsync(memory, p.streams[0]));
  }
  CHECK(cudaDeviceSynchronize());
  for (cudaEvent_t event : {p.start, p.end}) CHECK(cudaEventDestroy(event));
  for (cudaStream_t stream : p.streams) CHECK(cudaStreamDestroy(stream));
  for (float* pinned : {p.here.x, p.here.y, p.here.sums}) CHECK(cudaFreeHost(pinned));
}

void by_streams(Pipeline& p) {
  Host host = {p.here.sums, 0, 0};
  enqueue(p.here, p.there, p.streams, p.start, p.end);
  CHECK(cudaLaunchHostFunc(p.streams[0], add_up, &host));
  CHECK(cudaStreamSynchronize(p.streams[0]));
  compare("sum by streams", host.total, p.expected);
  compare("wrong elements", wrong_elements(p.here), 0);
}

cudaGraph_t capture(Pipeline& p, Host* host) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(p.streams[0], cudaStreamCaptureModeThreadLocal));
  enqueue(p.here, p.there, p.streams, p.start, p.end);
  CHECK(cudaLaunchHostFunc(p.streams[0], add_up, host));
  cudaStreamCaptureStatus status;
  CHECK(cudaStreamIsCapturing(p.streams[1], &status));
  compare("the second stream is captured too", status, cudaStreamCaptureStatusActive);
  CHECK(cudaStreamEndCapture(p.streams[0], &graph));
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  compare("nodes", nodes, 3 + 4 * kChunks);
  return graph;
}

void by_graph(Pipeline& p) {
  constexpr int kLaunches = 5;
  Host host = {p.here.sums, 0, 0};
  cudaGraph_t graph = capture(p, &host);
  compare("calls of the host function while it is captured", host.calls, 0);
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < kChunks * kCount; ++i) p.here.y[i] = -1;
  cudaEvent_t done;
  CHECK(cudaEventCreate(&done));
  CHECK(cudaEventRecord(p.start, p.streams[0]));
  for (int i = 0; i < kLaunches; ++i) CHECK(cudaGraphLaunch(exec, p.streams[0]));
  CHECK(cudaEventRecord(done, p.streams[0]));
  CHECK(cudaEventSynchronize(done));
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, p.start, done));
  compare("time goes on", milliseconds >= 0, 1);
  compare("calls of the host function", host.calls, kLaunches);
  compare("sum by the graph", host.total, kLaunches * p.expected);
  compare("wrong elements", wrong_elements(p.here), 0);
  CHECK(cudaEventDestroy(done));
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
}

int main() {
  Pipeline pipeline;
  set_up(pipeline);
  by_streams(pipeline);
  by_graph(pipeline);
  tear_down(pipeline);
}
