// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover gradients of kda on Hopper by runs of two chunks against the recurrence in
// double: every option, every kind of length and gate, in segments, over ranks, and from what a
// forward has saved.
#include <doctest/doctest.h>

#include "tests/ops/kda/runs.h"

using namespace apitest;

namespace {

const std::vector<KdaSetup> kRuns = setups(R"(
    bf16 bf16 bf16 128 2 | backward
    bf16 f32 f32 128 2 | backward packed initial final
    bf16 bf16 bf16 128 2 | backward l2norm bounded factor bias sigmoid initial final
    bf16 f32 bf16 128 1 | backward packed l2norm bounded sigmoid initial final v_first
    bf16 bf16 f32 128 2 | backward packed l2norm softplus factor bias sigmoid negative initial final
    bf16 f32 bf16 64 1 | backward softplus factor sigmoid final
    bf16 bf16 bf16 64 2 | backward packed bounded bias initial final v_first
    bf16 f32 f32 64 1 | backward packed l2norm initial final
    bf16 f16 bf16 64 1 | backward packed l2norm softplus factor
)");

FAMILY_CASE("sm90", "kda: gradients by runs of two chunks, of every option and kind of length") {
  uint64_t seed = 1;
  for (const KdaSetup& s : kRuns) {
    for (size_t turn = 0; turn < 3; ++turn, ++seed) {
      const KdaCase kda = run_shape_of(s, turn);
      check_runs(kda, make_kda_inputs(kda, seed), kda_small_device(kda), seed, turn < 2);
    }
  }
}

// A run begins and goes on with a state whose columns have decayed by any amount.
FAMILY_CASE("sm90", "kda: gradients by runs of two chunks, with gates from 0 to -200") {
  uint64_t seed = 1;
  for (const double weakest : {-0.001, -1.0, -4.9, -5.2, -12.0, -40.0, -200.0}) {
    for (const double strong_share : {0.0, 0.05}) {
      KdaCase kda = run_shape_of({kBf16, kBf16, kBf16, 128, 1, "backward initial final"}, 2);
      kda.any_gates = false, kda.weakest = weakest, kda.strong_share = strong_share;
      check_runs(kda, make_kda_inputs(kda, seed), kda_small_device(kda), seed, true);
      ++seed;
    }
  }
}

// The walk forward begins a segment with a chunk that need not begin a run.
FAMILY_CASE("sm90", "kda: gradients by runs of two chunks, in as many segments as are chosen") {
  for (const bool packed : {false, true}) {
    for (const int64_t tokens : {1080, 1152}) {
      KdaCase kda = run_shape_of({kBf16, kF32, kBf16, 64, 2, "backward l2norm initial final"}, 0);
      kda.batch = kda.heads = 1, kda.tokens = tokens;
      kda.any_gates = false, kda.weakest = -0.05;
      if (packed) kda.cu_seqlens = {0, 0, tokens + 1030, tokens + 1030}, kda.padding = 1100;
      const Answer answer =
          check_runs(kda, make_kda_inputs(kda, tokens), kda_small_device(kda), tokens);
      CHECK(blocks_of(answer, "kda_summary_warpgroups") > 0);
    }
  }
}

// In one call the forward writes the state of every chunk, as it does for a backward of its own.
FAMILY_CASE("sm90", "kda: gradients by runs of two chunks from what a forward has left") {
  for (const bool apart : {false, true}) {
    for (const size_t turn : {0, 1, 2}) {
      KdaCase kda = run_shape_of(
          {kBf16, kBf16, kF32, 128, 2, "packed l2norm softplus factor sigmoid initial final"},
          turn);
      kda.backward = kda.dht = true;
      kda.saved = kda.apart = apart;
      check_runs(kda, make_kda_inputs(kda, turn + 1), kda_small_device(kda), turn);
    }
  }
}

// A number of segments that the caller gives fixes the bits, whatever the device.
FAMILY_CASE("sm90", "kda: with a given number of segments a block has one chunk") {
  KdaCase kda = run_shape_of({kBf16, kBf16, kBf16, 64, 1, "backward initial final"}, 1);
  const int64_t multiprocessors = kda_small_device(kda);
  kda.segments = 1;
  const KdaInputs inputs = make_kda_inputs(kda);
  Outputs first;
  for (const int64_t each : {multiprocessors, int64_t{132}}) {
    const Answer answer = on_device_of(each, 0, [&] { return answer_of(kda, inputs, false); });
    check_clean(answer);
    CHECK(blocks_of(answer, "kda_backward_warpgroups") == 2 * kda_runs(kda));
    check_kda(kda, inputs, answer.outputs);
    if (first.empty()) first = answer.outputs;
    check_same(answer.outputs, first);
  }
}

// A shard is what a sequence is on one rank: its first state comes from another one.
FAMILY_CASE("sm90", "kda: gradients by runs of two chunks over ranks") {
  KdaCase kda = run_shape_of({kBf16, kF32, kBf16, 64, 2, "l2norm initial final"}, 0);
  kda.batch = 1, kda.tokens = 520;
  kda.any_gates = false, kda.weakest = -0.05;
  kda.backward = kda.dht = true;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Answer answer = on_device_of(4, 0, [&] {
    Answer own;
    own.outputs = run_kda_ranks(kda, inputs, {190, 130, 200});
    return own;
  });
  REQUIRE(answer.error == "");
  check_kda(kda, inputs, answer.outputs, 1.5);
}

}  // namespace
