// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The running softmax of attention over accumulators of mma.sync, in base 2 and in units y where a
// weight is 2^(y t): one multiply-add and one exponential per score. A lane holds rows g and g + 8
// of each block of 16 rows; the four lanes of a quad share a row.
#pragma once
#include "attention/operand.cuh"
#include "common/math.cuh"

namespace lathe {

constexpr float kLn2 = 0.6931471805599453f;
__device__ __forceinline__ float minus_infinity() { return bit_cast<float>(0xff800000u); }

// 2^x by one instruction; results below 2^-126 are 0.
__device__ __forceinline__ float ex2_flushed(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float lg2(float x) {
  float result;
  asm("lg2.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// tanh(x / cap), given tanh_scale_of(cap): 1 - 2 / (1 + e^(2x / cap)). The error is absolute, a few
// 2^-24, where tanh.approx has 2^-11.
__device__ __forceinline__ float tanh_scale_of(float cap) { return __fdiv_rn(2.0f * kLog2E, cap); }
__device__ __forceinline__ float tanh_scaled(float x, float scale) {
  return __fmaf_rn(-2.0f, rcp(__fadd_rn(1.0f, ex2_flushed(__fmul_rn(x, scale)))), 1.0f);
}

__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// The same, to the accuracy that the element deserves.
template <class Element>
__device__ __forceinline__ float tanh_of(float x, float, float tanh_scale) {
  return tanh_scaled(x, tanh_scale);
}
template <>
__device__ __forceinline__ float tanh_of<f32>(float x, float cap, float) {
  return tanhf(__fdiv_rn(x, cap));
}

// softcap * tanh(x / softcap), and x - slope * |distance|: the options, and what mods may call.
template <class Element>
__device__ __forceinline__ float capped_score(float x, float scale, float cap) {
  return __fmul_rn(cap, tanh_of<Element>(x, cap, scale));
}
__device__ __forceinline__ float biased_score(float x, float slope, float distance) {
  return __fmaf_rn(-slope, fabsf(distance), x);
}

// Float32 weights are summed by the product with the values, in its order and with its rounding:
// where all values are 1, o and l are equal to the bit. l is then the whole row's in every lane.
template <class Element>
constexpr bool kSumsInProduct = Operand<Element>::kPlanes > 1;
template <class Element>
__device__ __forceinline__ float row_sum(float sum) {
  return kSumsInProduct<Element> ? sum : quad_sum(sum);
}

// Maximum m (in y) of the rows so far and the lane's own part of l = sum 2^((y - m) t).
template <int kRowBlocks>
struct RunningSoftmax {
  float most[kRowBlocks][2], sum[kRowBlocks][2];
};

// 2^((y - base) t), shift being base * t: in one operation, or for float32 in two, which rounds in
// proportion to the difference and makes the largest score's weight 1.
template <class Element>
__device__ __forceinline__ float weight(float y, float base, float t, float shift) {
  if constexpr (kSumsInProduct<Element>) return ex2_flushed(__fmul_rn(__fsub_rn(y, base), t));
  return ex2_flushed(__fmaf_rn(y, t, -shift));
}

// One key block: y becomes the weights 2^((y - m) t), operand A of the next product; o and l are
// scaled to the new maximum. kGuard: a row may have met no key yet, and -inf - -inf must not arise.
template <bool kGuard, class Element, int kRowBlocks, int kTiles, int kOutTiles>
__device__ __forceinline__ void softmax_step(float (&y)[kRowBlocks][kTiles][4], float t,
                                             RunningSoftmax<kRowBlocks>& rows,
                                             float (&o)[kRowBlocks][kOutTiles][4],
                                             Accumulated<Element, kTiles> (&p_words)[kRowBlocks]) {
#pragma unroll
  for (int b = 0; b < kRowBlocks; ++b) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = rows.most[b][half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        most = fmaxf(most, fmaxf(y[b][n][2 * half], y[b][n][2 * half + 1]));
      }
      most = quad_max(most);
      const float base = kGuard && most == minus_infinity() ? 0.0f : most;
      const float shift = __fmul_rn(base, t);
      const float scale = ex2_flushed(__fmul_rn(__fsub_rn(rows.most[b][half], base), t));
      rows.most[b][half] = most;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const float first = weight<Element>(y[b][n][2 * half], base, t, shift);
        const float second = weight<Element>(y[b][n][2 * half + 1], base, t, shift);
        if constexpr (!kSumsInProduct<Element>) sum += first + second;
        p_words[b].put(n, half, first, second);
      }
      rows.sum[b][half] = __fmaf_rn(rows.sum[b][half], scale, sum);
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        o[b][n][2 * half] *= scale;
        o[b][n][2 * half + 1] *= scale;
      }
    }
  }
}

// A RowEnd has what is left of a row at its end: out = o * scale = o * factor / sum, and the
// natural logarithm of the sum.
struct RowEnd {
  float scale, lse, factor, sum;
};
template <class Element>
__device__ __forceinline__ float row_end(float o, const RowEnd& end) {
  return o * end.scale;
}
template <>
__device__ __forceinline__ float row_end<f32>(float o, const RowEnd& end) {
  return __fdiv_rn(__fmul_rn(o, end.factor), end.sum);
}
// `sum` is the whole row's. With a sink: one more logit, whose value is 0. One of +inf takes all
// weight, and lse is +inf.
template <bool kSinks>
__device__ __forceinline__ RowEnd softmax_end(float most, float sum, float t, float sink) {
  float base = most == minus_infinity() ? minus_infinity() : __fmul_rn(most, t);
  float factor = 1.0f;
  if constexpr (kSinks) {
    const float logit = __fmul_rn(sink, kLog2E);
    const float larger = fmaxf(base, logit);
    const float guarded = larger == minus_infinity() ? 0.0f : larger;
    factor = ex2_flushed(base - guarded);
    sum = __fmaf_rn(sum, factor, logit == guarded ? 1.0f : ex2_flushed(logit - guarded));
    base = larger;
  }
  if (sum == 0.0f) return {0.0f, minus_infinity(), 0.0f, 1.0f};
  return {factor * rcp(sum), (base + lg2(sum)) * kLn2, factor, sum};
}

}  // namespace lathe
