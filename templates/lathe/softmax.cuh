// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Softmax of rows whose scores come in pieces: each row keeps the greatest score and the sum of
// powers so far, and what was added up before is scaled where a greater score comes.
//
//   const float* const score = p.x + (64LL * blockIdx.x + threadIdx.x) * p.D;
//   if (score >= p.x + p.T * p.D) return;  // a row for each thread
//   lathe::OnlineSoftmax row;
//   float mean = 0.0f;                     // of the columns' numbers
//   for (int d = 0; d < p.D; d += 4) {     // D is a multiple of 4
//     float greatest = score[d];
//     for (int i = d + 1; i < d + 4; ++i) greatest = fmaxf(greatest, score[i]);
//     mean *= row.update(greatest);        // the factor of what is there of earlier pieces
//     for (int i = d; i < d + 4; ++i) mean += row.weight(score[i]) * i;  // 2^(score - greatest)
//   }
//   p.y[64 * blockIdx.x + threadIdx.x] = mean * row.finish(row.sum);
//
// Scores are multiplied by log2(e) before. A row without any key has a result of 0. Where several
// lanes have parts of a row, `greatest` is over all of them, and `finish` gets the sum over them.
#pragma once

#include "common/math.cuh"
#include "common/types.cuh"

namespace lathe {

// -inf: the score of a key that a mask hides.
__device__ __forceinline__ float hidden_score() { return bit_cast<float>(0xff800000u); }

struct OnlineSoftmax {
  float greatest = hidden_score(), sum = 0.0f;

  // Takes the greatest score of a further piece; returns the factor of earlier sums.
  __device__ __forceinline__ float update(float score) {
    const float now = fmaxf(greatest, score);
    // Nothing was added up where no score was above -inf.
    const float factor = greatest == hidden_score() ? 0.0f : ex2(greatest - now);
    greatest = now, sum *= factor;
    return factor;
  }
  __device__ __forceinline__ float weight(float score) {
    const float found = score == hidden_score() ? 0.0f : ex2(score - greatest);
    sum += found;
    return found;
  }
  // Returns the factor that makes sums of weighted values a mean; `total`: of all lanes of the row.
  static __device__ __forceinline__ float finish(float total) {
    return total == 0.0f ? 0.0f : 1.0f / total;
  }
};

}  // namespace lathe
