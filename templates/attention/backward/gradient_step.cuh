// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One block of rows of one head, seen by a tile of keys: what attention_backward and
// attention_block_backward share. They differ in where rows lie and in which scores count.
#pragma once
#include "attention/backward/gradient_products.cuh"
#include "attention/backward/score_gradients.cuh"
#include "common/async_copy.cuh"

namespace lathe {

// Tells weigh whether it is compiled for scores that a mask may take out.
template <bool kIsMasked>
struct Masked {
  static constexpr bool kValue = kIsMasked;
};

// p and ds of the warp's keys and queries: p goes into dv at once or is exchanged, ds is exchanged.
// weigh(Masked, s, words) makes p of scores; `full`: no mask takes one out. `delta`: shared memory,
// of the lane's queries.
template <class Config, class Smem, class Weigh>
__device__ __forceinline__ void make_p_and_ds(unsigned shared, unsigned q, unsigned delta,
                                              int value_dim, bool full, const Weigh& weigh,
                                              typename GradientShape<Config>::Operands& ds,
                                              typename GradientShape<Config>::DvAccumulators& dv) {
  using Shape = GradientShape<Config>;
  const unsigned dout = shared + Smem::kDoutAt;
  typename Shape::Scores s = {}, dp = {};
  typename Shape::Operands p_words;
  add_scores<Config, Config::kWidth>(shared, q, s);
  if (full) {
    weigh(Masked<false>{}, s, p_words);
  } else {
    weigh(Masked<true>{}, s, p_words);
  }
  if constexpr (Shape::kExchange) {
    exchange<Config>(p_words, shared + Smem::kPAt);
  } else {
    add_products<Config, typename Shape::ValueShare, Config::kValueWidth>(p_words, 0, dout,
                                                                          value_dim, dv);
  }
  add_scores<Config, Config::kValueWidth>(shared + Smem::kVAt, dout, dp);
  if (full) {
    score_gradients<Config, false>(s, dp, ds, delta);
  } else {
    score_gradients<Config, true>(s, dp, ds, delta);
  }
  // In float32 each of the warps that share keys has all of ds.
  if (!Shape::kSplit || Shape::kExchange || uniform(Shape::width_warp() == 0)) {
    exchange<Config>(ds, shared + Smem::kDsAt);
  }
}

// The block's copies are complete at the first barrier; those of the next one, if there are `more`,
// start where the last reader of their place has been left behind. scores(ds) is make_p_and_ds with
// what the caller does behind the first barrier.
template <class Config, class Smem, class CopyQ, class CopyDout, class Scores>
__device__ __forceinline__ void gradient_step(const AttentionBackwardParams& p, unsigned shared,
                                              unsigned q, bool more, const CopyQ& copy_q,
                                              const CopyDout& copy_dout, const Scores& scores,
                                              typename GradientShape<Config>::DkAccumulators& dk,
                                              typename GradientShape<Config>::DvAccumulators& dv) {
  using Shape = GradientShape<Config>;
  typename Shape::Operands ds;
  copy_async_wait<0>();
  __syncthreads();  // all is there for all; all have left ds, and with two stages the other Q
  if constexpr (Config::kStages == 2) {
    if (more) copy_q();
    copy_async_commit();
  }
  scores(ds);
  __syncthreads();  // p and ds are there for all; without exchange, all have left dout
  if constexpr (Shape::kExchange) {
    add_products<Config, typename Shape::ValueShare, Config::kValueWidth>(
        ds, shared + Smem::kPAt, shared + Smem::kDoutAt, p.value_dim, dv);
  } else {
    if (more) copy_dout();
    copy_async_commit();
  }
  add_products<Config, typename Shape::KeyShare, Config::kWidth>(ds, shared + Smem::kDsAt, q,
                                                                 p.head_dim, dk);
  if constexpr (Shape::kExchange || Config::kStages == 1) {
    __syncthreads();  // all have left Q, and with an exchange dout
    if (more) {
      if constexpr (Shape::kExchange) copy_dout();
      if constexpr (Config::kStages == 1) copy_q();
    }
    copy_async_commit();
  }
}

}  // namespace lathe
