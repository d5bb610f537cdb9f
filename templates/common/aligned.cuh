// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Access to the rows of a caller's tensors, whose addresses and strides may be multiples of fewer
// bytes than the access is wide: it is then made of as many pieces as it takes. A promise of 16
// bytes, which is the usual one, gives the plain wide access and is no constant of a Config.
#pragma once
#include "common/async_copy.cuh"
#include "common/math.cuh"
#include "common/types.cuh"

namespace lathe {

template <class Config, class = void>
struct PromiseOf {
  static constexpr int kBytes = 16;
};
template <class Config>
struct PromiseOf<Config, decltype(static_cast<void>(Config::kAlignment))> {
  static constexpr int kBytes = Config::kAlignment;
};
// Bytes that addresses and strides of a tensor of Element are multiples of: an element at least.
template <class Config, class Element>
constexpr int kAlignmentOf = PromiseOf<Config>::kBytes > static_cast<int>(sizeof(Element))
                                 ? PromiseOf<Config>::kBytes
                                 : static_cast<int>(sizeof(Element));

// load_global and store_global, of memory aligned to kAlignment: 2, 4, 8 or 16.
template <int kAlignment, int kBytes>
__device__ __forceinline__ void load_aligned(const void* from, Words<kBytes>& to) {
  if constexpr (kAlignment >= 16 || kAlignment >= kBytes) {
    load_global(from, to);
  } else if constexpr (kAlignment >= 4) {
#pragma unroll
    for (int at = 0; at < kBytes; at += kAlignment) {
      Words<kAlignment> piece;
      load_global(static_cast<const char*>(from) + at, piece);
#pragma unroll
      for (int i = 0; i < kAlignment / 4; ++i) to.word[at / 4 + i] = piece.word[i];
    }
  } else {
#pragma unroll
    for (int at = 0; at < kBytes; at += 4) {
      Words<2> low, high;
      load_global(static_cast<const char*>(from) + at, low);
      load_global(static_cast<const char*>(from) + at + 2, high);
      to.word[at / 4] = low.half | static_cast<unsigned>(high.half) << 16;
    }
  }
}
template <int kAlignment, int kBytes>
__device__ __forceinline__ void store_aligned(void* to, const Words<kBytes>& from) {
  if constexpr (kAlignment >= 16 || kAlignment >= kBytes) {
    store_global(to, from);
  } else if constexpr (kAlignment >= 4) {
#pragma unroll
    for (int at = 0; at < kBytes; at += kAlignment) {
      Words<kAlignment> piece;
#pragma unroll
      for (int i = 0; i < kAlignment / 4; ++i) piece.word[i] = from.word[at / 4 + i];
      store_global(static_cast<char*>(to) + at, piece);
    }
  } else {
#pragma unroll
    for (int at = 0; at < kBytes; at += 2) {
      const unsigned word = from.word[at / 4] >> (at % 4 * 8);
      store_global(static_cast<char*>(to) + at, Words<2>{static_cast<unsigned short>(word)});
    }
  }
}
// Four floats, or two, of memory that this grid also writes: not through the read-only path.
template <int kAlignment>
__device__ __forceinline__ Words<16> load_written(const float* from) {
  if constexpr (kAlignment >= 16) {
    return *reinterpret_cast<const Words<16>*>(from);
  } else {
    Words<16> to;
#pragma unroll
    for (int i = 0; i < 4; ++i) to.word[i] = bit_cast<unsigned>(from[i]);
    return to;
  }
}
template <int kAlignment>
__device__ __forceinline__ float2 load_written_pair(const float* from) {
  if constexpr (kAlignment >= 8) {
    return *reinterpret_cast<const float2*>(from);
  } else {
    return make_float2(from[0], from[1]);
  }
}
// Four elements of such memory.
template <int kAlignment, class Element>
__device__ __forceinline__ void load_written_four(const Element* from, float (&to)[4]) {
  if constexpr (sizeof(Element) == 4) {
    unpack<f32>(load_written<kAlignment>(from), to);
  } else if constexpr (kAlignment >= 8) {
    unpack<Element>(*reinterpret_cast<const Words<8>*>(from), to);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = to_float(from[i]);
  }
}
template <int kAlignment>
__device__ __forceinline__ void store_written_pair(float* to, float2 pair) {
  if constexpr (kAlignment >= 8) {
    *reinterpret_cast<float2*>(to) = pair;
  } else {
    to[0] = pair.x, to[1] = pair.y;
  }
}

// copy_async of memory aligned to kAlignment, where eight lanes fill all banks: groups of eight
// begin with different pieces, so that the pieces of a warp lie in different banks. Two bytes are
// too few for an asynchronous copy: the thread waits for its loads and stores what they give, where
// and when the copy would.
template <int kAlignment>
__device__ __forceinline__ void copy_aligned(unsigned to, const void* from, bool wanted) {
  if constexpr (kAlignment >= 16) {
    copy_async(to, from, wanted);
  } else if constexpr (kAlignment >= 4) {
#pragma unroll
    for (unsigned i = 0; i < 16 / kAlignment; ++i) {
      const unsigned at = (i + threadIdx.x / 8) * kAlignment % 16;
      const char* piece = static_cast<const char*>(from) + at;
      if constexpr (kAlignment == 8) {
        copy_async_pair(to + at, piece, wanted);
      } else {
        copy_async_word(to + at, piece, wanted);
      }
    }
  } else {
    Words<16> chunk = {};
    if (wanted) load_aligned<kAlignment>(from, chunk);
    store_shared(to, chunk);
  }
}

}  // namespace lathe
