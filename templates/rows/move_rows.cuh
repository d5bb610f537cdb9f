// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// move_rows: rows of heads from one layout to another, several tensors in one launch: what ranks
// send each other is packed and unpacked so. to(t, b, h) = from(t, b, h) of each move, bit for bit.
//
// A block takes kThreads * kItems words of one move, in the order (token, batch, head, word), so
// that the words of a head, which lie together on both sides, are neighbours in a warp. Threads
// share nothing: there is no barrier.
#pragma once
#include "common/types.cuh"
#include "params/rows.h"

namespace lathe {

constexpr long long kNoRow = -(1ll << 62);

// Returns where a row lies, or kNoRow for a negative index, which fills up a list of fixed length.
__device__ __forceinline__ long long row_offset(const RowLayout& layout, int token, int batch,
                                                int head, int repeat) {
  const int real = (head + (head >= layout.skip_at ? layout.skip : 0)) / repeat;
  const int group = real / layout.heads;
  const long long at =
      layout.index == nullptr ? token : load_element(static_cast<const int*>(layout.index) + token);
  if (at < 0) return kNoRow;
  return at * layout.token + batch * layout.batch + group * layout.group +
         (real - group * layout.heads) * layout.head;
}

template <class Config>
__device__ void move_rows(const MoveRowsParams& p) {
  using Word = Words<Config::kWordBytes>;
  constexpr int kItems = Config::kItems;
  const int block = static_cast<int>(blockIdx.x);
  int which = 0;
  while (block >= p.moves[which].last_block) ++which;
  const RowMove& move = p.moves[which];
  const int first_block = which == 0 ? 0 : p.moves[which - 1].last_block;
  const unsigned total = static_cast<unsigned>(move.tokens) * move.batch * move.heads * move.words;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const unsigned item =
        (static_cast<unsigned>(block - first_block) * kItems + i) * Config::kThreads + threadIdx.x;
    if (item >= total) return;
    const unsigned row = item / move.words, word = item - row * move.words;
    const unsigned cell = row / move.heads;
    const int head = static_cast<int>(row - cell * move.heads);
    const int token = static_cast<int>(cell / move.batch);
    const int batch = static_cast<int>(cell - static_cast<unsigned>(token) * move.batch);
    const long long from = row_offset(move.from, token, batch, head, move.repeat);
    const long long to = row_offset(move.to, token, batch, head, 1);
    if (from == kNoRow || to == kNoRow) continue;
    Word value;
    load_global(static_cast<const Word*>(move.from.data) + from + word, value);
    store_global(static_cast<Word*>(move.to.data) + to + word, value);
  }
}

}  // namespace lathe
