// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Softmax of rows whose scores come in pieces: each row keeps the greatest score and the sum of
// powers so far, and what was added up before is scaled where a greater score comes.
//
//   lathe::OnlineSoftmax row;                      // a row, or the part of it that four lanes
//   share const float factor = row.update(greatest);     // of this piece, over all lanes of the
//   row out *= factor;                                 // what is there of earlier pieces weight =
//   row.weight(score);                    // 2^(score - greatest), added to the sum out += weight *
//   value; out *= row.finish(total_of_the_lanes(row.sum));
//
// Scores are multiplied by log2(e) before. A row without any key has a result of 0.
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
