// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions tell mods where the rows and keys of a visit are among all positions, and ask
// mask_tile, if there is one, whether the visit is worth making. Rows and keys of a block step are
// parts of sequences, so that a place in the tensors says nothing to a mod.
#pragma once
#include "attention/mask_class.cuh"
#include "attention/visit_queue.cuh"

namespace lathe {

template <class Config>
constexpr bool kHasMods = HasScoreMod<Config>::kValue || HasMaskMod<Config>::kValue;

// Rows row..row_end - 1 and keys key..key_end - 1.
struct VisitRectangle {
  int row, row_end, key, key_end;
};

// A VisitMask says what a mask_mod leaves of a rectangle of positions for a block of threads that
// has one head or all query heads of a key head. Without a mask_tile nobody knows before the scores
// are there.
template <class Config>
struct VisitMask {
  static constexpr bool kPositions = kHasMods<Config>, kAsks = HasMaskMod<Config>::kValue;
  const AttentionCaptures captures;
  const int batch, first_head, end_head;

  __device__ __forceinline__ int of(int at_batch, const VisitRectangle& at) const {
    if constexpr (kAsks) {
      if constexpr (Config::MaskMod::kHasTile) {
        bool none = true, all = true;
#pragma unroll 1
        for (int head = first_head; head < end_head; ++head) {
          const int found = Config::MaskMod::tile(at_batch, head, at.row, at.row_end, at.key,
                                                  at.key_end, captures);
          none = none && found == kMaskNone;
          all = all && found == kMaskAll;
        }
        return none ? kMaskNone : all ? kMaskAll : kMaskMixed;
      }
      return kMaskMixed;
    }
    return kMaskAll;
  }
};

// Rows and keys of a visit -> what mods are asked about: those of the visit only, and in the
// place of others its first or last ones.
struct VisitPositions {
  int row, row_end, key, key_end;
  VisitOrigin from;

  __device__ __forceinline__ int query_of(int r) const {
    return minimum(maximum(r, row), row_end - 1) + from.query;
  }
  __device__ __forceinline__ int key_of(int j) const {
    return minimum(maximum(j, key), key_end - 1) + from.key;
  }
};

}  // namespace lathe
