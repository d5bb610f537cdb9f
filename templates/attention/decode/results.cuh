// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A warp stores this of its rows when it has some of their columns: out and lse, or with more than
// one split the partial result.
#pragma once
#include "attention/decode/rows.cuh"

namespace lathe {

// `sum` is the whole row's. The sink belongs to one split's result, else to attention_combine.
template <class Config>
__device__ __forceinline__ RowEnd decode_row_end(const AttentionDecodeParams& decode, bool there,
                                                 int head, const DecodeSplit& split, float most,
                                                 float sum, float t) {
  if (Config::kSinks && split.count <= 1) {
    const float* sinks = static_cast<const float*>(decode.forward.sinks);
    const float sink = there ? load_element(sinks + head) : minus_infinity();
    return softmax_end<true>(most, sum, t, sink);
  }
  return softmax_end<false>(most, sum, t, 0.0f);
}

// Row `warp_row` of a warp, `half` of its accumulators. column_of(n): where the 8 columns of tile n
// begin. `with_lse`: this warp stores it for those that share the row.
template <class Config, int kOutTiles, class ColumnOf>
__device__ __forceinline__ void store_decoded(const AttentionDecodeParams& decode,
                                              const QueryTile& tile, const DecodeSplit& split,
                                              int query, int head, int half, const RowEnd& end,
                                              bool with_lse, const float (&o)[1][kOutTiles][4],
                                              const ColumnOf& column_of) {
  using Element = typename Config::Element;
  const AttentionForwardParams& p = decode.forward;
  const int quarter = thread_index() % 4;
  const bool there = query < tile.rows, alone = split.count <= 1;
  const long long at = decode_row<Config>(p, tile, query, head);
  const long long partial = decode_partial<Config>(p, tile, split, query, head);
  if (there && with_lse && quarter == 0) {
    float* lse =
        alone ? static_cast<float*>(p.lse) + at : static_cast<float*>(decode.partial_lse) + partial;
    store_element(lse, end.lse);
  }
  if (!alone) {
    float* to = static_cast<float*>(decode.partial_out) + partial * p.value_dim + 2 * quarter;
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {  // a quad stores 32 bytes of a row
      const float pair[2] = {o[0][n][2 * half] * end.scale, o[0][n][2 * half + 1] * end.scale};
      if (there) store_global(to + column_of(n), pack<f32, 8>(pair));
    }
    return;
  }
  Element* to = static_cast<Element*>(p.out) +
                decode_offset<Config>(tile, p.out_batch_stride, p.out_token_stride) +
                query * p.out_token_stride + head * p.out_head_stride;
#pragma unroll
  for (int n = 0; n < kOutTiles; n += 4) {
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float(&sums)[4] = o[0][n + i];
      word[i] = pack_pair(sums[2 * half] * end.scale, sums[2 * half + 1] * end.scale, Element{});
    }
    const Words<16> columns = turn_in_quad(word);
    if (there) {
      store_aligned<kAlignmentOf<Config, Element>>(to + column_of(n + quarter), columns);
    }
  }
}

}  // namespace lathe
