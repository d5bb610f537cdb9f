// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda against the recurrence in double and its gradients where sequences, chunks
// and segments end: together, apart, one token before and one behind each other.
#include <doctest/doctest.h>

#include "tests/ops/kda/setups.h"

using namespace apitest;

namespace {

// Ends of sequences at, before and behind those of a chunk, and up to three value heads a key head.
const std::vector<KdaSetup> kGradients = setups(R"(
    bf16 bf16 f32 128 4 | l2norm bounded factor bias sigmoid final
    bf16 f32 bf16 128 4 | packed l2norm softplus factor bias sigmoid initial grouped
    f16 f32 f32 256 4 | packed l2norm final narrow grouped
    bf16 bf16 bf16 64 4 | packed bounded bias initial final v_first
    bf16 f32 f32 128 4 | packed l2norm softplus factor bias
    f32 f32 f32 64 4 | l2norm softplus factor bias sigmoid final
    f32 f32 f32 128 2 | packed initial grouped
)");

EVERY_FAMILY_CASE("kda: gradients where sequences and chunks end together and apart") {
  uint32_t seed = 1;
  for (KdaSetup s : kGradients) {
    s.flags += " backward";
    for (const int turn : {0, 1}) {
      KdaCase kda = case_of(s);
      if (s.has("packed")) kda.cu_seqlens = {0, 0, 5, 5 + 64 * turn, 150, 150};
      kda.batch = 2, kda.tokens = 70 + 30 * turn;
      kda.heads = 1 + turn, kda.group = s.has("grouped") ? 3 - turn : 1;
      kda.key_dim = s.width - 12 * turn - (s.has("narrow") ? 4 : 4 * turn);
      kda.value_dim = turn == 0 ? 64 : 72;
      check_case(kda, seed++);
    }
  }
}

// The walk back and the gradients of wide keys are the portable ones on every device; Hopper's walk
// forward leaves them the states.
EVERY_FAMILY_CASE("kda: gradients of keys of 192 and 256") {
  const std::vector<KdaSetup> kWide = setups(R"(
      bf16 bf16 f32 256 8 | packed l2norm softplus factor bias sigmoid initial final
      bf16 f32 bf16 256 16 | initial final v_first
      bf16 bf16 bf16 192 8 | packed l2norm bounded sigmoid final
  )");
  uint64_t seed = 1;
  for (KdaSetup s : kWide) {
    for (const bool both : {false, true}) {
      s.flags += both ? " both" : " backward";
      KdaCase kda = case_of(s);
      kda.warps = 0;
      if (s.has("packed")) kda.cu_seqlens = {0, 1, 1, 64, 129, 260}, kda.padding = 20;
      kda.tokens = 150;
      kda.key_dim = s.width - (both ? 8 : 0), kda.value_dim = 16 * s.warps - (both ? 0 : 24);
      kda.segments = both ? 1 : 2;
      INFO(kda.text());
      const KdaInputs inputs = make_kda_inputs(kda, seed++);
      check_kda(kda, inputs);
      const Answer answer = run(kda_backward_call(kda, inputs, {}));
      CHECK(answer.spec("kda_backward") != "");
      CHECK(answer.spec("kda_backward_scan") != "");
      CHECK((answer.spec("kda_forward_warpgroups") != "") == in_family("sm90"));
    }
  }
}

struct Segmented {
  KdaSetup setup;
  std::vector<int64_t> cu_seqlens;  // or of a batch of 2 the length
  int heads, group, key_dim, value_dim;
  std::vector<int> segments;
};

// Empty sequences, segments of one token and of none, heads that differ in their decay, columns
// past K and V.
const std::vector<Segmented> kSegmented = {
    {{kBf16, kF32, kF32, 64, 4,
      "packed l2norm softplus factor bias sigmoid initial final chunks both"},
     {0, 0, 1, 64, 128, 193, 493, 493},
     1,
     3,
     56,
     72,
     {1, 2, 3, 8}},
    {{kF16, kF32, kBf16, 128, 4, "final initial v_first narrow both"},
     {300},
     1,
     1,
     108,
     60,
     {2, 5}},
    {{kBf16, kBf16, kF32, 64, 4, "packed"}, {0, 65, 330}, 3, 1, 64, 64, {4}},
    {{kF32, kF32, kF32, 64, 2, "packed l2norm sigmoid initial final both"},
     {0, 65, 265},
     1,
     1,
     64,
     32,
     {1, 3, 8}},
};

EVERY_FAMILY_CASE("kda: forwards and backwards in any number of segments") {
  uint64_t seed = 1;
  for (const Segmented& each : kSegmented) {
    KdaCase kda = case_of(each.setup);
    kda.tight = each.setup.element != LATHE_F32;  // chains add roundings
    if (each.cu_seqlens.size() > 1) kda.cu_seqlens = each.cu_seqlens;
    kda.batch = 2, kda.tokens = each.cu_seqlens[0];
    kda.heads = each.heads, kda.group = each.group;
    kda.key_dim = each.key_dim, kda.value_dim = each.value_dim;
    for (const int segments : each.segments) {
      kda.segments = segments;
      check_case(kda, seed++);
    }
  }
}

}  // namespace
