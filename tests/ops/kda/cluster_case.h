// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file runs cases of kda whose segments are the blocks of a cluster, and sees to it that they
// are.
#pragma once

#include "tests/ops/kda/setups.h"

namespace apitest {

// One head of as many tokens, by what a cluster takes at its widest.
inline KdaCase cluster_case(int64_t tokens, int segments) {
  KdaCase kda;
  kda.gate_dtype = LATHE_BF16;
  kda.key_dim = kda.value_dim = 128;
  kda.tokens = tokens;
  kda.segments = segments;
  return kda;
}

// Runs a case without bank conflicts and with one launch, whose blocks are as many clusters as
// there are heads of sequences.
inline Outputs run_cluster(const KdaCase& kda, const KdaInputs& inputs) {
  Answer answer = run(kda_call(kda, inputs));
  CHECK(answer.spec("kda_forward_cluster") != "");
  CHECK(answer.spec("kda_merge") == "");
  REQUIRE(answer.launches.size() == 1);
  const int64_t tokens = kda.packed() ? kda.rows() : kda.tokens;
  const int64_t segments = std::min<int64_t>(kda.segments, (tokens + 63) / 64);
  const int64_t sequences = std::max<int64_t>(kda.sequences(), 1);
  CHECK(answer.launches[0].at("grid")[0] == sequences * kda.value_heads() * segments);
  return std::move(answer.outputs);
}

inline void check_cluster(const KdaCase& kda, uint64_t seed) {
  INFO(kda.text() << " seed " << seed);
  const KdaInputs inputs = make_kda_inputs(kda, seed);
  check_kda(kda, inputs, run_cluster(kda, inputs));
}

}  // namespace apitest
