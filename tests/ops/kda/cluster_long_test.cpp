// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This test covers kda's segments by clusters over a long sequence whose state hardly decays, so
// that what seven links of its chain round is there at the end.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/numbers.h"
#include "tests/ops/kda/cluster_case.h"

using namespace apitest;

FAMILY_CASE("sm90", "kda: a cluster over 65536 tokens that hardly decay") {
  KdaCase kda = cluster_case(65536, 8);
  kda.gate_dtype = LATHE_F32;
  kda.l2norm = true;
  kda.weakest = -2e-5;
  KdaInputs inputs = make_kda_inputs(kda);
  // Steps of a thousandth: others would take what the first segments have left.
  for (double& beta : inputs.kda.beta) beta = numbers::rounded(kda.beta_dtype, 1e-3 * beta);
  const Outputs out = run_cluster(kda, inputs), expected = kda_reference(kda, inputs);
  check_kda(kda, inputs, out);
  // The last tokens by themselves: no average over the ones before hides them.
  const auto last = [](const Values& o) { return Values(o.end() - 1024 * 128, o.end()); };
  check_rms("o", last(out.at("o")), last(expected.at("o")), kda_bound(kda, "o"));
}
