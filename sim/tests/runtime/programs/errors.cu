// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Calls go wrong here, and the program learns of it: errors of a launch are forgotten when they have
// been asked for, a fault stays until the device is reset.
#include "check.h"

__global__ void write(int* out) { out[threadIdx.x] = threadIdx.x; }

int main() {
  int* out = nullptr;
  CHECK(cudaMalloc(&out, 32 * sizeof(int)));
  write<<<1, 2048>>>(out);
  compare("error of a block too large", cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
  compare("the last error", cudaGetLastError(), cudaErrorInvalidConfiguration);
  compare("the last error then", cudaGetLastError(), cudaSuccess);
  write<<<0, 32>>>(out);
  compare("error of an empty grid", cudaGetLastError(), cudaErrorInvalidConfiguration);
  write<<<1, 32, 1 << 20>>>(out);
  compare("error of too much shared memory", cudaGetLastError(), cudaErrorInvalidValue);

  int device = 0;
  compare("error of a device that is not there", cudaSetDevice(99), cudaErrorInvalidDevice);
  compare("the last error", cudaGetLastError(), cudaErrorInvalidDevice);
  CHECK(cudaGetDevice(&device));
  compare("the device still", device, 0);
  int nothing = 0;
  compare("error of a symbol that is none", cudaMemcpyToSymbol(&device, &nothing, 4),
          cudaErrorInvalidSymbol);
  compare("error of a kernel that is none",
          cudaFuncSetAttribute(&device, cudaFuncAttributeMaxDynamicSharedMemorySize, 0),
          cudaErrorInvalidDeviceFunction);
  compare("error of a direction that is none",
          cudaMemcpy(out, &nothing, 4, static_cast<cudaMemcpyKind>(9)),
          cudaErrorInvalidMemcpyDirection);
  cudaArray_t array;
  const cudaChannelFormatDesc format = {32, 0, 0, 0, cudaChannelFormatKindFloat};
  compare("error of what is not supported", cudaMallocArray(&array, &format, 16),
          cudaErrorNotSupported);
  compare("the last error", cudaGetLastError(), cudaErrorNotSupported);

  cudaEvent_t event;
  CHECK(cudaEventCreate(&event));
  write<<<1, 32>>>(out);
  CHECK(cudaEventRecord(event));
  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }
  compare("not ready is no error", cudaGetLastError(), cudaSuccess);
  CHECK(cudaEventDestroy(event));

  CHECK(cudaFree(out));
  write<<<1, 32>>>(out);
  compare("error of a wild store", cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  compare("the last error", cudaGetLastError(), cudaErrorIllegalAddress);
  compare("the last error still", cudaGetLastError(), cudaErrorIllegalAddress);
  compare("error of an allocation", cudaMalloc(&out, 4), cudaErrorIllegalAddress);
  write<<<1, 32>>>(out);
  compare("error of a launch", cudaGetLastError(), cudaErrorIllegalAddress);
  CHECK(cudaDeviceReset());
  compare("the last error after a reset", cudaGetLastError(), cudaSuccess);
  CHECK(cudaMalloc(&out, 32 * sizeof(int)));
  write<<<1, 32>>>(out);
  int here[32];
  CHECK(cudaMemcpy(here, out, sizeof here, cudaMemcpyDeviceToHost));
  compare("a store after a reset", here[31], 31);
  CHECK(cudaFree(out));
}
