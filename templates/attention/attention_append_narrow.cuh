// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_append_narrow: attention_append into a cache of e4m3.
//
//   code = e4m3(x / scale), rounded to nearest even, at most 448 in size
//
// The scale is the head's, which the caller has chosen, or that of the row, or of 128 columns of a
// row of bytes: then it is made here, max|x| / 448, and 1 where all x are 0. A block has a token. A
// warp has one head's keys or values at a time, in parts of 128 columns, 4 of them a lane.
#pragma once
#include "attention/attention_append.cuh"
#include "attention/decode/narrow_rows.cuh"

namespace lathe {

// A head of the token, where its columns are read and what becomes of them.
template <class Config>
struct NarrowHead {
  using Element = typename Config::Element;
  static constexpr int kNarrow = NarrowOf<Config>::kValue;
  const AttentionRotary& rotary;
  const Element* from;
  unsigned char* to;
  int columns, position;
  bool turns;

  // A column as it is attended to, turned and rounded once.
  __device__ __forceinline__ float value(int column) const {
    if (IsRotary<Config>::kValue && turns && column < rotary.columns) {
      if constexpr (IsRotary<Config>::kValue) {
        const int pairs = rotary.columns / 2;
        const int pair = Config::kInterleaved ? column / 2 : column % pairs;
        float a = to_float(load_element(from + rotary_column<Config>(rotary, pair, 0)));
        float b = to_float(load_element(from + rotary_column<Config>(rotary, pair, 1)));
        rotate_pair<Config>(rotary, position, pair, a, b);
        return to_float(
            from_float<Element>(column == rotary_column<Config>(rotary, pair, 0) ? a : b));
      }
    }
    return to_float(load_element(from + column));
  }
  __device__ __forceinline__ void values(int column, int end, float (&x)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = column + i < end ? value(column + i) : 0.0f;
  }

  // max|x| / 448 over columns begin..end - 1, by a warp; all of its lanes get it.
  __device__ __forceinline__ float own_scale(int begin, int end) const {
    float most = 0.0f;
    for (int column = begin + 4 * (static_cast<int>(threadIdx.x) % 32); column < end;
         column += 128) {
      float x[4];
      values(column, end, x);
#pragma unroll
      for (int i = 0; i < 4; ++i) most = fmaxf(most, fabsf(x[i]));
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    }
    return most > 0.0f ? __fdiv_rn(most, kMostE4m3) : 1.0f;
  }
  __device__ __forceinline__ void store_codes(int begin, int end, float scale) const {
    for (int column = begin + 4 * (static_cast<int>(threadIdx.x) % 32); column < end;
         column += 128) {
      float x[4];
      values(column, end, x);
      unsigned word = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) word |= narrow_e4m3(__fdiv_rn(x[i], scale)) << (8 * i);
      if constexpr (PromiseOf<Config>::kBytes >= 4) {
        store_global(to + column, Words<4>{{word}});
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[column + i] = static_cast<unsigned char>(word >> (8 * i));
      }
    }
  }
  // `scales`: of this head, or for each row, of row and head.
  __device__ __forceinline__ void store(float* scale) const {
    if constexpr (kNarrow == kByteRows) {
      const int lane = threadIdx.x % 32;
#pragma unroll 1
      for (int part = 0; part < ByteRow::kCodes / ByteRow::kScaled; ++part) {
        const int begin = part * ByteRow::kScaled, end = begin + ByteRow::kScaled;
        const float own = own_scale(begin, end);
        store_codes(begin, end, own);
        if (lane == 0) {
          store_element(reinterpret_cast<float*>(to + ByteRow::kScalesAt) + part, own);
        }
      }
      for (int i = lane; i < ByteRow::kWide; i += 32) {
        store_element(reinterpret_cast<bf16*>(to + ByteRow::kWideAt) + i,
                      from_float<bf16>(value(ByteRow::kCodes + i)));
      }
      return;
    }
    float own;
    if constexpr (kNarrow == kRowScales) {
      own = own_scale(0, columns);
      if (threadIdx.x % 32 == 0) store_element(scale, own);
    } else {
      own = load_element(static_cast<const float*>(scale));
    }
    store_codes(0, columns, own);
  }
};

template <class Config>
__device__ void attention_append_narrow(const AttentionAppendParams& p) {
  using Element = typename Config::Element;
  const AppendedToken token = appended_token<Config>(p);
  const auto [stored, address] = append_address(p, token);
  if (address.page < 0) return;
  const int batch = IsRagged<Config>::kValue ? 0 : token.b;
  const int t = IsRagged<Config>::kValue ? token.start + token.row : token.row;
  int position = 0;
  if constexpr (IsRotary<Config>::kValue) {
    position = rotary_position(p.rotary, token.b, token.start, token.row, stored);
  }
  const long long slot = static_cast<long long>(address.page) * p.pages.page + address.row;
  const int both = p.v_words > 0 ? 2 : 1;
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < both * p.kv_heads; i += Config::kThreads / 32) {
    const int head = i / both;
    const bool keys = i % both == 0;
    const Element* from =
        static_cast<const Element*>(keys ? p.k_new : p.v_new) +
        (keys ? batch * p.k_batch_stride + t * p.k_token_stride + head * p.k_head_stride
              : batch * p.v_batch_stride + t * p.v_token_stride + head * p.v_head_stride);
    unsigned char* to = static_cast<unsigned char*>(keys ? p.k_cache : p.v_cache) +
                        (keys ? address.page * p.k_page_stride + address.row * p.k_row_stride +
                                    head * p.k_cache_head_stride
                              : address.page * p.v_page_stride + address.row * p.v_row_stride +
                                    head * p.v_cache_head_stride);
    const long long scale = NarrowOf<Config>::kValue == kRowScales
                                ? slot * p.kv_heads + head
                                : head * (keys ? p.scales.k_stride : p.scales.v_stride);
    NarrowHead<Config>{p.rotary, from, to, keys ? p.k_words : p.v_words, position, keys}.store(
        static_cast<float*>(keys ? p.scales.k : p.scales.v) + scale);
  }
}

}  // namespace lathe
