// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kernels that do little but move bytes, as anybody would write them.

// Each thread moves 16 bytes.
extern "C" __global__ void copy(const float4* x, float4* y) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}

extern "C" __global__ void add(const float4* a, const float4* b, float4* c) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 x = a[i], y = b[i];
  c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

template <class Op>
__device__ float reduce(float x, Op op) {
  __shared__ float parts[32];
  for (int s = 16; s > 0; s /= 2) x = op(x, __shfl_xor_sync(~0u, x, s));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = parts[0];
  for (int w = 1; w < blockDim.x / 32; ++w) x = op(x, parts[w]);
  return x;
}

constexpr int kQuads = 4;  // of a thread: 256 threads hold a row of 4096

// A block sums a row of 4096.
extern "C" __global__ void rowsum(const float4* x, float* y) {
  const float4* row = x + (size_t)blockIdx.x * blockDim.x * kQuads;
  float4 v[kQuads];
  for (int k = 0; k < kQuads; ++k) v[k] = row[k * blockDim.x + threadIdx.x];
  float sum = 0;
  for (int k = 0; k < kQuads; ++k) sum += v[k].x + v[k].y + v[k].z + v[k].w;
  sum = reduce(sum, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

extern "C" __global__ void softmax(const float4* x, float4* y) {
  const size_t at = (size_t)blockIdx.x * blockDim.x * kQuads;
  float4 v[kQuads];
  float most = -3e38f, sum = 0;
  for (int k = 0; k < kQuads; ++k) v[k] = x[at + k * blockDim.x + threadIdx.x];
  for (int k = 0; k < kQuads; ++k)
    most = fmaxf(most, fmaxf(fmaxf(v[k].x, v[k].y), fmaxf(v[k].z, v[k].w)));
  most = reduce(most, [](float a, float b) { return fmaxf(a, b); });
  for (int k = 0; k < kQuads; ++k) {
    v[k] = make_float4(__expf(v[k].x - most), __expf(v[k].y - most), __expf(v[k].z - most),
                       __expf(v[k].w - most));
    sum += v[k].x + v[k].y + v[k].z + v[k].w;
  }
  const float scale = 1 / reduce(sum, [](float a, float b) { return a + b; });
  for (int k = 0; k < kQuads; ++k) {
    y[at + k * blockDim.x + threadIdx.x] =
        make_float4(v[k].x * scale, v[k].y * scale, v[k].z * scale, v[k].w * scale);
  }
}

// 8192 x 8192; a block of 32 x 8 threads turns a tile of 32 x 32.
extern "C" __global__ void transpose(const float* x, float* y) {
  __shared__ float tile[32][33];
  constexpr unsigned kSide = 8192;
  const unsigned column = blockIdx.x % (kSide / 32) * 32, row = blockIdx.x / (kSide / 32) * 32;
  const unsigned lane = threadIdx.x % 32, part = threadIdx.x / 32;
  for (unsigned k = part; k < 32; k += 8) tile[k][lane] = x[(row + k) * kSide + column + lane];
  __syncthreads();
  for (unsigned k = part; k < 32; k += 8) y[(column + k) * kSide + row + lane] = tile[lane][k];
}
