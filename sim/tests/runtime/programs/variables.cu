// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Variables of a program on the device, copies into and out of them, and memory that kernels
// allocate themselves.
#include <vector>

#include "check.h"

constexpr int kCoefficients = 5;
__constant__ float coefficients[kCoefficients];
__device__ int counts[4] = {10, 20, 30, 40};
__device__ float scratch[64];
__managed__ int shared_with_host = 7;

// Horner's rule.
__global__ void polynomial(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = 0;
  for (int k = kCoefficients - 1; k >= 0; --k) value = value * x[i] + coefficients[k];
  y[i] = value;
  atomicAdd(&counts[i % 4], 1);
  if (i == 0) shared_with_host *= 6;
}

struct Node {
  int value;
  Node* next;
};

// Every thread builds a list on the heap, reverses an array on the heap, and gives both back.
__global__ void lists(int* out) {
  Node* first = nullptr;
  for (int i = 0; i <= threadIdx.x % 8; ++i) first = new Node{i, first};
  int sum = 0;
  while (first != nullptr) {
    sum = sum * 2 + first->value;
    Node* next = first->next;
    delete first;
    first = next;
  }
  int* numbers = static_cast<int*>(malloc(4 * sizeof(int)));
  for (int i = 0; i < 4; ++i) numbers[i] = i * threadIdx.x;
  out[threadIdx.x] = sum + numbers[3];
  free(numbers);
}

int list_of(int thread) {
  int sum = 0;
  for (int i = thread % 8; i >= 0; --i) sum = sum * 2 + i;
  return sum + 3 * thread;
}

// Returns the number of values that differ from a plain loop's.
double wrong_values(const std::vector<float>& x, const std::vector<float>& y, const float* given) {
  double wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double expected = 0, power = 1;
    for (int k = 0; k < kCoefficients; ++k) expected += given[k] * power, power *= x[i];
    wrong += std::fabs(expected - y[i]) > 1e-4;
  }
  return wrong;
}

void constants_and_counts() {
  constexpr int kCount = 1000;
  const float given[kCoefficients] = {1, -2, 3, 0.5f, -0.25f};
  CHECK(cudaMemcpyToSymbol(coefficients, given, 2 * sizeof(float)));
  CHECK(cudaMemcpyToSymbolAsync(coefficients, given + 2, 3 * sizeof(float), 2 * sizeof(float),
                                cudaMemcpyHostToDevice));
  compare("more than the variable has",
          cudaMemcpyToSymbol(coefficients, given, sizeof given, sizeof(float)),
          cudaErrorInvalidValue);
  compare("the last error", cudaGetLastError(), cudaErrorInvalidValue);
  std::vector<float> x(kCount), y(kCount);
  for (int i = 0; i < kCount; ++i) x[i] = (i % 9) - 4;
  float *x_there = nullptr, *y_there = nullptr;
  CHECK(cudaMalloc(&x_there, kCount * sizeof(float)));
  CHECK(cudaMalloc(&y_there, kCount * sizeof(float)));
  CHECK(cudaMemcpy(x_there, x.data(), kCount * sizeof(float), cudaMemcpyDefault));
  polynomial<<<4, 256>>>(x_there, y_there, kCount);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(y.data(), y_there, kCount * sizeof(float), cudaMemcpyDefault));
  compare("wrong values", wrong_values(x, y, given), 0);
  int counted[4] = {};
  CHECK(cudaMemcpyFromSymbol(counted, counts, sizeof counted));
  for (int i = 0; i < 4; ++i) compare("count", counted[i], 10 * (i + 1) + kCount / 4);
  compare("managed variable", shared_with_host, 42);
  shared_with_host = 5;
  polynomial<<<1, 1>>>(x_there, y_there, 1);
  CHECK(cudaDeviceSynchronize());
  compare("managed variable", shared_with_host, 30);
  CHECK(cudaFree(x_there));
  CHECK(cudaFree(y_there));
}

void addresses() {
  constexpr int kCopied = 8, kOffset = 4;
  size_t bytes = 0;
  void* place = nullptr;
  CHECK(cudaGetSymbolSize(&bytes, counts));
  compare("bytes of the counts", bytes, 4 * sizeof(int));
  CHECK(cudaGetSymbolAddress(&place, scratch));
  CHECK(cudaMemset(place, 0, sizeof scratch));
  float* there = nullptr;
  float here[kCopied], copied[kCopied + kOffset];
  for (int i = 0; i < kCopied; ++i) here[i] = 1.5f * i;
  CHECK(cudaMalloc(&there, sizeof here));
  CHECK(cudaMemcpy(there, here, sizeof here, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpyToSymbol(scratch, there, sizeof here, kOffset * sizeof(float),
                           cudaMemcpyDeviceToDevice));
  CHECK(cudaMemcpyFromSymbol(copied, scratch, sizeof copied));
  for (int i = 0; i < kCopied + kOffset; ++i) {
    compare("copied", copied[i], i < kOffset ? 0 : 1.5 * (i - kOffset));
  }
  cudaPointerAttributes about;
  CHECK(cudaPointerGetAttributes(&about, there));
  compare("kind of the device's memory", about.type, cudaMemoryTypeDevice);
  CHECK(cudaPointerGetAttributes(&about, here));
  compare("kind of the host's memory", about.type, cudaMemoryTypeUnregistered);
  CHECK(cudaFree(there));
}

void heap() {
  constexpr int kThreads = 64;
  int *out = nullptr, *managed = nullptr;
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 4 << 20));
  CHECK(cudaMallocManaged(&managed, kThreads * sizeof(int)));
  CHECK(cudaMalloc(&out, kThreads * sizeof(int)));
  lists<<<1, kThreads>>>(out);
  CHECK(cudaMemcpy(managed, out, kThreads * sizeof(int), cudaMemcpyDefault));
  CHECK(cudaDeviceSynchronize());  // a copy within the device's memory returns before it is over
  double wrong = 0;
  for (int i = 0; i < kThreads; ++i) wrong += managed[i] != list_of(i);
  compare("wrong lists", wrong, 0);
  CHECK(cudaFree(out));
  CHECK(cudaFree(managed));
}

int main() {
  heap();  // the limit is set before anything has been launched
  constants_and_counts();
  addresses();
}
