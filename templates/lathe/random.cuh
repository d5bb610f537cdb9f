// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Random numbers that follow from a seed and two counters alone, so that any grid draws the same:
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, 2011), with the counters in
// the order of cuRAND: words 0 and 1 are the offset, 2 and 3 the subsequence.
//
//   const long long i = 64LL * blockIdx.x + threadIdx.x;  // four elements
//   const lathe::Random random = lathe::philox(p.seed, i, 0);
//   for (int k = 0; k < 4; ++k) {
//     const bool keep = lathe::uniform(random.word[k]) >= p.rate;
//     if (4 * i + k < p.N) p.y[4 * i + k] = keep ? p.x[4 * i + k] / (1 - p.rate) : 0.0f;
//   }
#pragma once

namespace lathe {

struct Random {
  unsigned word[4];
};

__device__ __forceinline__ Random philox(unsigned long long seed, unsigned long long subsequence,
                                         unsigned long long offset) {
  unsigned key0 = static_cast<unsigned>(seed), key1 = static_cast<unsigned>(seed >> 32);
  unsigned a = static_cast<unsigned>(offset), b = static_cast<unsigned>(offset >> 32);
  unsigned c = static_cast<unsigned>(subsequence), d = static_cast<unsigned>(subsequence >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned low0 = 0xD2511F53u * a, high0 = __umulhi(0xD2511F53u, a);
    const unsigned low1 = 0xCD9E8D57u * c, high1 = __umulhi(0xCD9E8D57u, c);
    a = high1 ^ b ^ key0, b = low1, c = high0 ^ d ^ key1, d = low0;
    key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
  }
  return {{a, b, c, d}};
}

// A number from 0 on, less than 1, in steps of 2^-24: each is a float32.
__device__ __forceinline__ float uniform(unsigned word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

// Two numbers of the normal distribution (Box and Muller).
struct NormalPair {
  float first, second;
};
__device__ __forceinline__ NormalPair normal(unsigned word, unsigned other) {
  const float radius = sqrtf(-2.0f * logf(1.0f - uniform(word)));
  float sine, cosine;
  sincosf(6.2831853071795865f * uniform(other), &sine, &cosine);
  return {radius * cosine, radius * sine};
}

}  // namespace lathe
