// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover CUDA C++ through NVRTC and the simulator, against the same computation on the
// host.
#include "sim/tests/nvrtc.h"

#include <cmath>
#include <random>

#include "sim/tests/kernel_run.h"

using namespace sim;
using namespace sim::test;

namespace {

bool compiled(Device* device, const std::string& source, const std::string& arch) {
  static Nvrtc nvrtc;
  if (!nvrtc.available()) {
    MESSAGE("skipped: libnvrtc.so cannot be opened");
    return false;
  }
  std::string log;
  const std::string ptx = nvrtc.compile(source, arch, &log);
  INFO(log);
  REQUIRE(!ptx.empty());
  device->load(ptx);
  return true;
}

}  // namespace

TEST_CASE("vector addition") {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    CAPTURE(arch);
    Device device(arch);
    if (!compiled(&device, R"(
      extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i];
      })",
                  arch)) {
      return;
    }
    const int n = 1000;
    std::vector<float> a(n), b(n);
    for (int i = 0; i < n; ++i) {
      a[i] = 0.1f * static_cast<float>(i);
      b[i] = 1.0f / static_cast<float>(i + 1);
    }
    const uint64_t c = device.buffer(n * 4);
    const Outcome o = device.run("add", 8, 128, device.upload(a), device.upload(b), c, n);
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
    const auto result = device.download<float>(c, n);
    for (int i = 0; i < n; ++i) CHECK(result[i] == a[i] + b[i]);
    CHECK(o.counters.global_load.bytes == 8u * n);
    CHECK(o.counters.global_load.sectors == o.counters.global_load.minimum_sectors);
    CHECK(o.counters.unique_store_sectors == n * 4 / 32);
  }
}

namespace {

uint16_t to_bf16(float f) {
  uint32_t b;
  std::memcpy(&b, &f, 4);
  return static_cast<uint16_t>((b + 0x7FFF + (b >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t h) {
  const uint32_t b = static_cast<uint32_t>(h) << 16;
  float f;
  std::memcpy(&f, &b, 4);
  return f;
}

}  // namespace

// The shape of the library's kernels: 16-byte loads of bf16, a window in registers, silu by ex2 and
// a division, a search in cu_seqlens.
TEST_CASE("a causal convolution over packed sequences") {
  const char* source = R"(
    #include <cuda_bf16.h>
    struct Params { const __nv_bfloat16* x; const float* w; __nv_bfloat16* y; const int* cu; int T, D, N; };
    extern "C" __global__ void __launch_bounds__(64) conv(const __grid_constant__ Params p) {
      const int c = (blockIdx.x % 4 * 64 + threadIdx.x) * 8, t0 = blockIdx.x / 4 * 16;
      if (c >= p.D) return;
      float w[4][8], h[3][8] = {};
      #pragma unroll
      for (int k = 0; k < 8; ++k) {
        float4 v = *(const float4*)(p.w + (c + k) * 4);
        w[0][k] = v.x; w[1][k] = v.y; w[2][k] = v.z; w[3][k] = v.w;
      }
      int lo = 0, hi = p.N;
      while (hi - lo > 1) { int m = (lo + hi) / 2; if (p.cu[m] <= t0) lo = m; else hi = m; }
      int begin = p.cu[lo], end = p.cu[lo + 1];
      #pragma unroll
      for (int j = 0; j < 3; ++j) {
        int t = t0 - 3 + j;
        if (t < begin) continue;
        uint4 v = *(const uint4*)(p.x + (long long)t * p.D + c);
        const __nv_bfloat162* q = (const __nv_bfloat162*)&v;
        #pragma unroll
        for (int k = 0; k < 4; ++k) { float2 f = __bfloat1622float2(q[k]); h[j][2*k] = f.x; h[j][2*k+1] = f.y; }
      }
      for (int t = t0; t < t0 + 16 && t < p.T; ++t) {
        if (t >= end) {
          ++lo; begin = end; end = p.cu[lo + 1];
          #pragma unroll
          for (int k = 0; k < 8; ++k) h[0][k] = h[1][k] = h[2][k] = 0;
        }
        uint4 v = *(const uint4*)(p.x + (long long)t * p.D + c), o;
        const __nv_bfloat162* q = (const __nv_bfloat162*)&v;
        __nv_bfloat162* r = (__nv_bfloat162*)&o;
        #pragma unroll
        for (int k = 0; k < 4; ++k) {
          float2 f = __bfloat1622float2(q[k]);
          float in[2] = {f.x, f.y}, out[2];
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            int n = 2 * k + e;
            float a = fmaf(w[3][n], in[e], fmaf(w[2][n], h[2][n], fmaf(w[1][n], h[1][n], w[0][n] * h[0][n])));
            h[0][n] = h[1][n]; h[1][n] = h[2][n]; h[2][n] = in[e];
            out[e] = __fdividef(a, 1.0f + __expf(-a));
          }
          r[k] = __float22bfloat162_rn(make_float2(out[0], out[1]));
        }
        *(uint4*)(p.y + (long long)t * p.D + c) = o;
      }
    })";
  for (const char* arch : {"sm_80", "sm_90a"}) {
    CAPTURE(arch);
    Device device(arch);
    if (!compiled(&device, source, arch)) return;
    const int T = 201, D = 2048 - 16, N = 4;
    const std::vector<int> cu = {0, 1, 77, 78, T};
    std::vector<uint16_t> x(static_cast<size_t>(T) * D);
    std::vector<float> w(static_cast<size_t>(D) * 4);
    std::mt19937 engine(1);
    std::uniform_real_distribution<float> near(-1.0f, 1.0f);
    for (auto& v : x) v = to_bf16(near(engine));
    for (auto& v : w) v = near(engine);
    struct {
      uint64_t x, w, y, cu;
      int T, D, N, pad;
    } p{device.upload(x),
        device.upload(w),
        device.buffer(x.size() * 2),
        device.upload(cu),
        T,
        D,
        N,
        0};
    const Outcome o = device.run("conv", 4 * ((T + 15) / 16), 64, p);
    INFO(texts(o));
    REQUIRE(o.error == 0);
    CHECK(o.findings.empty());
    CHECK(device.memory.first_undefined(p.y, x.size() * 2) == UINT64_MAX);
    const auto y = device.download<uint16_t>(p.y, x.size());
    double worst = 0;
    for (int n = 0; n < N; ++n) {
      for (int t = cu[n]; t < cu[n + 1]; ++t) {
        for (int d = 0; d < D; ++d) {
          double a = 0;
          for (int j = 0; j < 4; ++j) {
            const int s = t - 3 + j;
            if (s >= cu[n])
              a += static_cast<double>(w[d * 4 + j]) * from_bf16(x[static_cast<size_t>(s) * D + d]);
          }
          const double want = a / (1 + std::exp(-a)),
                       got = from_bf16(y[static_cast<size_t>(t) * D + d]);
          worst = std::max(worst, std::fabs(got - want) / (std::fabs(want) + 1e-4));
        }
      }
    }
    CHECK(worst < 0.005);
    // A byte of x is loaded once, and three rows more for each tile; the store is perfect.
    CHECK(o.counters.global_store.bytes == x.size() * 2);
    CHECK(o.counters.global_store.sectors == o.counters.global_store.minimum_sectors);
    CHECK(o.counters.unique_store_sectors * 32 == x.size() * 2);
  }
}

TEST_CASE("a block reduction with shuffles, shared memory and an atomic") {
  const char* source = R"(
    extern "C" __global__ void sum(const float* x, double* total, int n) {
      __shared__ double part[32];
      double v = 0;
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
      for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
      if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
      __syncthreads();
      if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0;
        for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
        if (threadIdx.x == 0) atomicAdd(total, v);
      }
    })";
  for (const char* arch : {"sm_80", "sm_90a"}) {
    Device device(arch);
    if (!compiled(&device, source, arch)) return;
    const int n = 10007;
    std::vector<float> x(n);
    double want = 0;
    for (int i = 0; i < n; ++i) want += x[i] = static_cast<float>(i % 101) * 0.25f;
    const uint64_t total = device.upload(std::vector<double>(1, 0.0));
    const Outcome o = device.run("sum", 7, 256, device.upload(x), total, n);
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
    CHECK(device.download<double>(total, 1)[0] == want);  // multiples of 1/4: exact in any order
  }
}

TEST_CASE("library functions, structures by value and local arrays") {
  const char* source = R"(
    struct Pair { int a; float b; };
    __device__ __noinline__ float mix(Pair p, float x) { return p.b * x + p.a; }
    __constant__ float table[4] = {1, 2, 4, 8};
    extern "C" __global__ void k(float* out, int n) {
      int i = threadIdx.x;
      float stack[8];
      for (int k = 0; k < 8; ++k) stack[k] = k * i;
      float v = stack[(i * 5 + n) & 7];
      v += sinf(0.01f * i) + expf(-0.1f * i) + logf(1.0f + i) + powf(1.5f, i * 0.1f) + table[i & 3];
      v += mix(Pair{i, 0.5f}, 3.0f) + (float)((long long)i * 1000003 / 7 % 13) + sqrtf(i) + tanhf(0.1f * i);
      out[i] = v;
    })";
  for (const char* arch : {"sm_80", "sm_90a"}) {
    Device device(arch);
    if (!compiled(&device, source, arch)) return;
    const uint64_t out = device.buffer(64 * 4);
    const Outcome o = device.run("k", 1, 64, out, 3);
    INFO(texts(o));
    CHECK(o.error == 0);
    CHECK(o.findings.empty());
    const auto v = device.download<float>(out, 64);
    for (int i = 0; i < 64; ++i) {
      const float table[] = {1, 2, 4, 8};
      double want = ((i * 5 + 3) & 7) * i;
      want += std::sin(0.01 * i) + std::exp(-0.1 * i) + std::log(1.0 + i) + std::pow(1.5, i * 0.1) +
              table[i & 3];
      want +=
          1.5 + i + static_cast<double>(i * 1000003ll / 7 % 13) + std::sqrt(i) + std::tanh(0.1 * i);
      CHECK(std::fabs(v[i] - want) < 1e-5 * (1 + std::fabs(want)));
    }
  }
}
