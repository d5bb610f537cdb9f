// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Cases of kda over ranks, and the comparison with one rank.
#pragma once

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "tests/ops/kda/case.h"

namespace apitest {

// Returns a case of the fused form, packed, two value heads for each key head.
// Segments of 0 are chosen.
inline KdaCase fused_case(std::vector<int64_t> cu_seqlens, int segments = 1) {
  KdaCase kda;
  kda.group = 2;
  kda.key_dim = 32, kda.value_dim = 20;
  kda.cu_seqlens = std::move(cu_seqlens), kda.tokens = kda.cu_seqlens.back();
  kda.gate = 1, kda.dt_bias = kda.l2norm = kda.sigmoid = true;
  kda.backward = kda.dht = true;
  kda.segments = segments;
  return kda;
}

// Returns a case of given gates in float32, rows of a batch.
inline KdaCase plain_case(int64_t batch, int64_t tokens, int segments = 1) {
  KdaCase kda;
  kda.element = kda.beta_dtype = LATHE_F32;
  kda.key_dim = 16, kda.value_dim = 24;
  kda.batch = batch, kda.tokens = tokens;
  kda.weakest = -0.1;
  kda.l2norm = kda.v_first = true;
  kda.backward = kda.dht = true;
  kda.segments = segments;
  return kda;
}

// The gates forget little, so that a state reaches through several parts.
inline KdaInputs lasting_inputs(const KdaCase& kda, uint64_t seed) {
  KdaInputs inputs = make_kda_inputs(kda, seed);
  for (double& g : inputs.kda.g) {
    if (kda.gate > 0) g = static_cast<float>(0.3 * g - 4);
  }
  return inputs;
}

// Checks what `many` ranks gave against one rank and the reference.
inline void check_ranks(const KdaCase& kda, const KdaInputs& inputs, const Outputs& many) {
  KdaCase whole = kda;
  whole.apart = false, whole.saved = false;
  const Outputs one = run_kda(whole, inputs);
  CHECK(many.size() == one.size());
  const bool narrow = kda.element != LATHE_F32;
  for (const auto& [name, values] : one) {
    const bool forward = name == "o" || name == "final_state" || name == "chunk_states";
    const double bound = narrow ? 8e-3 : forward ? 3e-5 : 4e-4;
    REQUIRE(many.contains(name));
    // Terms of sums cancel: these are held against the reference, by the size of their terms.
    if (narrow && (name == "dA_log" || name == "ddt_bias")) continue;
    check_rms(name, many.at(name), values, bound, 1e-5);
  }
  check_kda(kda, inputs, many, 1.5);
}

}  // namespace apitest
