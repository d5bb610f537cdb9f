// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Programs as courses and samples of CUDA have them: tiles, scans, sorts, histograms, locks, pipelines
// and barriers of the C++ library. samples_test.cpp says what each kernel computes.
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
#pragma nv_diag_suppress 20054  // barriers in shared memory have a constructor that does nothing

// b = a^T of n x n words, through a padded tile.
extern "C" __global__ void transpose(const int* a, int* b, int n) {
  __shared__ int tile[16][17];
  const int x = blockIdx.x * 16 + threadIdx.x % 16, y = blockIdx.y * 16 + threadIdx.x / 16;
  if (x < n && y < n) tile[threadIdx.x / 16][threadIdx.x % 16] = a[y * n + x];
  __syncthreads();
  const int tx = blockIdx.y * 16 + threadIdx.x % 16, ty = blockIdx.x * 16 + threadIdx.x / 16;
  if (tx < n && ty < n) b[ty * n + tx] = tile[threadIdx.x % 16][threadIdx.x / 16];
}

// The sum of a block's words: halves in shared memory, then a warp that meets after each step.
extern "C" __global__ void tree(const int* in, int* out) {
  __shared__ volatile int room[256];
  const unsigned t = threadIdx.x;
  room[t] = in[blockIdx.x * 256 + t];
  __syncthreads();
  for (unsigned half = 128; half >= 32; half /= 2) {
    if (t < half) room[t] = room[t] + room[t + half];
    __syncthreads();
  }
  if (t >= 32) return;
  for (unsigned half = 16; half > 0; half /= 2) {
    const int other = room[t + half];
    __syncwarp();
    room[t] = room[t] + other;
    __syncwarp();
  }
  if (t == 0) out[blockIdx.x] = room[0];
}

// The sums before each word, up the tree and down again.
extern "C" __global__ void scan(const int* in, int* out) {
  __shared__ int room[512];
  const unsigned t = threadIdx.x;
  room[2 * t] = in[2 * t];
  room[2 * t + 1] = in[2 * t + 1];
  unsigned step = 1;
  for (unsigned d = 256; d > 0; d /= 2, step *= 2) {
    __syncthreads();
    if (t < d) room[step * (2 * t + 2) - 1] += room[step * (2 * t + 1) - 1];
  }
  if (t == 0) room[511] = 0;
  for (unsigned d = 1; d < 512; d *= 2) {
    step /= 2;
    __syncthreads();
    if (t < d) {
      const unsigned low = step * (2 * t + 1) - 1, high = step * (2 * t + 2) - 1;
      const int kept = room[low];
      room[low] = room[high];
      room[high] += kept;
    }
  }
  __syncthreads();
  out[2 * t] = room[2 * t];
  out[2 * t + 1] = room[2 * t + 1];
}

// The same over blocks in one pass: each block looks back at those before it until one knows its sum.
// A status is 0 (nothing), 2 s + 1 << 32 | sum: s is 1 if the sum is that of all blocks up to it.
extern "C" __global__ void scan_blocks(const int* in, int* out, unsigned long long* status, unsigned* tickets) {
  __shared__ unsigned block;
  __shared__ int before;
  if (threadIdx.x == 0) block = atomicAdd(tickets, 1u);
  __syncthreads();
  const int v = in[block * 32 + threadIdx.x];
  int upto = v;
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFF, upto, d);
    if (threadIdx.x >= d) upto += other;
  }
  if (threadIdx.x == 31) {
    using Word = cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>;
    Word(status[block]).store(1ull << 32 | static_cast<unsigned>(upto), cuda::memory_order_release);
    int sum = 0;
    for (int k = static_cast<int>(block) - 1; k >= 0;) {
      const unsigned long long word = Word(status[k]).load(cuda::memory_order_acquire);
      if (word == 0) continue;
      sum += static_cast<int>(word);
      k = word >> 33 ? -1 : k - 1;
    }
    before = sum;
    Word(status[block]).store(3ull << 32 | static_cast<unsigned>(sum + upto), cuda::memory_order_release);
  }
  __syncthreads();
  out[block * 32 + threadIdx.x] = before + upto - v;
}

// Sorts 512 words.
extern "C" __global__ void bitonic(int* words) {
  __shared__ int room[512];
  for (unsigned i = threadIdx.x; i < 512; i += blockDim.x) room[i] = words[i];
  for (unsigned size = 2; size <= 512; size *= 2) {
    for (unsigned stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const unsigned i = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), k = i + stride;
      const int a = room[i], b = room[k];
      if ((a > b) == ((i & size) == 0)) room[i] = b, room[k] = a;
    }
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 512; i += blockDim.x) words[i] = room[i];
}

// Counts bytes: bins of each warp, then of the block, then of the device.
extern "C" __global__ void histogram(const unsigned char* bytes, int n, int* bins) {
  __shared__ int of_warp[4][64];
  for (unsigned k = threadIdx.x; k < 256; k += blockDim.x) of_warp[k / 64][k % 64] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&of_warp[threadIdx.x / 32][bytes[i] % 64], 1);
  }
  __syncthreads();
  if (threadIdx.x >= 64) return;
  int sum = 0;
  for (int w = 0; w < 4; ++w) sum += of_warp[w][threadIdx.x];
  if (sum != 0) atomicAdd(&bins[threadIdx.x], sum);
}

// A lock by tickets guards a plain counter; one thread of each block takes it a few times.
extern "C" __global__ void locked(unsigned* ticket, unsigned* serving, int* counter) {
  if (threadIdx.x != 0) return;
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> next(*ticket), now(*serving);
  for (int k = 0; k < 5; ++k) {
    const unsigned mine = next.fetch_add(1, cuda::memory_order_relaxed);
    while (now.load(cuda::memory_order_acquire) != mine) {
    }
    *counter = *counter * 3 % 1009 + 1;
    now.store(mine + 1, cuda::memory_order_release);
  }
}

// Two stages of a pipeline: the copy of the next piece is under way while this one is used.
extern "C" __global__ void pipeline(const int* in, int* out, int pieces) {
  __shared__ alignas(16) int room[2][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  const auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  const auto bytes = cuda::aligned_size_t<16>(sizeof room[0]);
  for (int k = -1; k < pieces; ++k) {
    if (k + 1 < pieces) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, room[(k + 1) % 2], in + 128 * (k + 1), bytes, pipe);
      pipe.producer_commit();
    }
    if (k < 0) continue;
    pipe.consumer_wait();
    out[128 * k + threadIdx.x] = 3 * room[k % 2][threadIdx.x ^ 1];
    pipe.consumer_release();
  }
}

// Warp 0 fills buffers, the others empty them: two barriers of the C++ library for each buffer.
extern "C" __global__ void producer(const int* in, int* out, int rounds) {
  __shared__ int room[2][96];
  __shared__ cuda::barrier<cuda::thread_scope_block> full[2], empty[2];
  if (threadIdx.x < 2) {
    init(&full[threadIdx.x], blockDim.x);
    init(&empty[threadIdx.x], blockDim.x);
  }
  __syncthreads();
  for (int k = 0; k < rounds; ++k) {
    if (threadIdx.x < 32) {
      if (k >= 2) empty[k % 2].arrive_and_wait();
      for (int i = threadIdx.x; i < 96; i += 32) room[k % 2][i] = in[96 * k + i] + k;
      (void)full[k % 2].arrive();
    } else {
      full[k % 2].arrive_and_wait();
      out[96 * k + threadIdx.x - 32] = room[k % 2][95 - (threadIdx.x - 32)];
      if (k + 2 < rounds) (void)empty[k % 2].arrive();
    }
  }
}

// The same by named barriers: producers arrive at "full" and wait at "empty", consumers turned round.
__device__ void meet(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ void come(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
extern "C" __global__ void named(const int* in, int* out, int rounds) {
  __shared__ int room[2][64];
  const int t = static_cast<int>(threadIdx.x) % 64;
  for (int k = 0; k < rounds; ++k) {
    if (threadIdx.x < 64) {
      if (k >= 2) meet(3 + k % 2, 128);
      room[k % 2][t] = in[64 * k + t] * 2;
      come(1 + k % 2, 128);
    } else {
      meet(1 + k % 2, 128);
      out[64 * k + t] = room[k % 2][63 - t];
      if (k + 2 < rounds) come(3 + k % 2, 128);
    }
  }
}

// One block sends to the next by a flag with release and acquire; the first one starts.
extern "C" __global__ void relay(int* data, int* flags) {
  cuda::atomic_ref<int, cuda::thread_scope_device> mine(flags[blockIdx.x]), next(flags[blockIdx.x + 1]);
  if (threadIdx.x == 0) {
    while (blockIdx.x != 0 && mine.load(cuda::memory_order_acquire) == 0) __nanosleep(20);
  }
  __syncthreads();
  data[threadIdx.x] = data[threadIdx.x] * 2 + static_cast<int>(blockIdx.x);
  __syncthreads();
  if (threadIdx.x == 0) next.store(1, cuda::memory_order_release);
}

// Virtual functions, recursion, and objects that a kernel makes.
struct Shape {
  __device__ virtual int area(int k) const = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  int side;
  __device__ explicit Square(int s) : side(s) {}
  __device__ int area(int k) const override { return side * side + k; }
};
struct Ladder : Shape {
  __device__ int area(int k) const override { return k < 2 ? k : area(k - 1) + area(k - 2); }
};
extern "C" __global__ void shapes(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  Shape* const shape = t % 3 == 0 ? static_cast<Shape*>(new Square(t)) : new Ladder;
  out[t] = shape->area(t % 9);
  delete shape;
}

// Instructions on pieces of words, each beside the same done by hand.
extern "C" __global__ void pieces(const unsigned* in, unsigned* wrong) {
  const unsigned a = in[threadIdx.x], b = in[threadIdx.x ^ 9];
  unsigned sum = 0, most = 0, apart = 0, greater = 0, dot = 0;
  for (int k = 0; k < 32; k += 8) {
    const unsigned x = a >> k & 255, y = b >> k & 255;
    sum |= (x + y & 255) << k;
    most |= (x > y ? x : y) << k;
    apart |= (x > y ? x - y : y - x) << k;
    greater |= (x > y ? 255u : 0) << k;
    dot += x * y;
  }
  unsigned mistakes = sum != __vadd4(a, b);
  mistakes |= (most != __vmaxu4(a, b)) << 1 | (apart != __vabsdiffu4(a, b)) << 2;
  mistakes |= (greater != __vcmpgtu4(a, b)) << 3 | (dot + 7 != __dp4a(a, b, 7u)) << 4;
  mistakes |= (__byte_perm(a, b, 0x5140) != ((a & 255) | (b & 255) << 8 | (a >> 8 & 255) << 16 | (b >> 8 & 255) << 24)) << 5;
  mistakes |= (__funnelshift_l(a, b, 5) != (b << 5 | a >> 27)) << 6;
  mistakes |= (__fns(a | 1, 0, 1) != 0) << 7 | (__brev(__brev(a)) != a) << 8;
  wrong[threadIdx.x] = mistakes;
}
