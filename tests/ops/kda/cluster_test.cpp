// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda's segments by the blocks of a cluster, in one launch, against the
// recurrence in double and under every check: all options, every number of segments, every length
// beside a segment's, slots of pools, and numbers at their worst.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/numbers.h"
#include "tests/ops/kda/cluster_case.h"

namespace {

using namespace apitest;
using ref::Array;

const std::vector<KdaSetup> kSetups = setups(R"(
    bf16 bf16 bf16 128 2 | final
    bf16 f32 f32 128 2 | initial final
    bf16 bf16 bf16 128 2 | l2norm bounded factor bias sigmoid initial final
    bf16 f32 bf16 128 2 | packed l2norm bounded sigmoid initial final v_first
    bf16 bf16 f32 128 2 | packed l2norm softplus factor bias sigmoid negative initial final
    bf16 f32 bf16 128 2 | softplus factor sigmoid initial
    bf16 f16 bf16 128 2 | l2norm final v_first
    bf16 bf16 bf16 128 2 | packed bounded bias initial final
    bf16 f32 f32 128 2 | packed l2norm softplus factor bias
    bf16 f16 f16 128 2 | bounded factor bias v_first initial
)");

// Lengths that leave 0 to 8 of eight segments with tokens, and the last one whole or of a token.
constexpr std::array kLengths = {0, 1, 64, 65, 128, 129, 193, 255, 320, 449, 512, 513};

FAMILY_CASE("sm90", "kda: a cluster with every option, in 2 to 8 segments") {
  uint32_t seed = 1;
  for (const KdaSetup& s : kSetups) {
    for (const int more : {0, 3}) {
      KdaCase kda = case_of(s);
      kda.warps = 0;
      kda.segments = static_cast<int>(2 + (seed + more) % 7);
      for (int n = 0; n < 4 && s.has("packed"); ++n) {
        if (n == 0) kda.cu_seqlens = {0};
        kda.cu_seqlens.push_back(kda.cu_seqlens.back() + kLengths[(3 * seed + 5 * n) % 12]);
        kda.padding = n == 0 ? 0 : 20;
      }
      kda.batch = 1 + seed % 2, kda.tokens = std::array{150, 512, 130, 401, 321}[seed % 5];
      kda.group = 1 + seed / 2 % 3 % 2, kda.heads = 1 + seed % 3 / 2;
      kda.key_dim = std::array{128, 96, 72, 120}[seed % 4];
      kda.value_dim = std::array{80, 128, 72, 128, 104}[seed % 5];
      kda.index_dtype = seed % 2 == 0 ? LATHE_I64 : LATHE_I32;
      kda.gap = seed % 3 == 0 ? 8 : 0;  // of NaN, also behind columns of K and V
      check_cluster(kda, seed++);
    }
  }
}

FAMILY_CASE("sm90", "kda: a cluster of each size, with none of its segments empty and with most") {
  for (int segments = 2; segments <= 8; ++segments) {
    KdaCase kda = cluster_case(0, segments);
    kda.cu_seqlens = {0};
    for (const int length : {64 * segments, 1, 0, 64 * segments - 63, 64 * (segments + 1), 65}) {
      kda.cu_seqlens.push_back(kda.cu_seqlens.back() + length);
    }
    check_cluster(kda, static_cast<uint64_t>(segments));
  }
}

// Eight segments of which 0 to 8 have tokens. The last sequence is the one behind which rows are
// nobody's.
FAMILY_CASE("sm90", "kda: a cluster of packed sequences of every length, some of none") {
  KdaCase kda = cluster_case(0, 8);
  kda.group = 2, kda.key_dim = 96, kda.value_dim = 80;
  kda.cu_seqlens = {0};
  for (const int length : kLengths) {
    kda.cu_seqlens.push_back(kda.cu_seqlens.back() + length);
  }
  kda.cu_seqlens.insert(kda.cu_seqlens.end(), 2, kda.cu_seqlens.back());
  kda.padding = 130;
  check_cluster(kda, 1);
  kda.cu_seqlens.assign(4, 0);  // rows that are all nobody's
  check_cluster(kda, 2);
  kda.tokens = kda.padding = 0;
  kda.cu_seqlens.clear();
  check_kda(kda, make_kda_inputs(kda));  // nothing but states, in one segment
}

FAMILY_CASE("sm90", "kda: a cluster over slots of a pool") {
  constexpr std::array kTypes = {LATHE_F32, LATHE_BF16, LATHE_F16};
  for (uint32_t turn = 0; turn < 16; ++turn) {
    KdaCase kda = cluster_case(0, 2 + static_cast<int>(turn) % 7);
    kda.states = KdaCase::pool;
    kda.v_first = turn % 3 == 1, kda.l2norm = turn % 2 == 0;
    kda.cu_seqlens = {0};
    for (uint32_t n = 0; n < 5; ++n) {
      kda.cu_seqlens.push_back(kda.cu_seqlens.back() + kLengths[(turn + 5 * n) % 11]);
    }
    kda.padding = turn % 3 == 1 ? 9 : 0;
    kda.group = 1 + turn / 2 % 2;
    kda.key_dim = 128 - 8 * (turn % 4), kda.value_dim = 72 + 8 * (turn % 8);
    kda.index_dtype = turn % 3 == 0 ? LATHE_I64 : LATHE_I32;
    kda.pool_dtype = kTypes[turn / 2 % 3];
    kda.slot_options = static_cast<int>(turn % 8);
    kda.wild_slots = turn % 5 == 4;
    kda.gap = turn % 2 != 0 ? 16 : 0;
    check_cluster(kda, 1 + turn);
  }
}

Array state_of(const Array& pool, int64_t slots, int64_t slot) {
  const auto each = std::ssize(pool) / slots;
  return {pool.begin() + slot * each, pool.begin() + (slot + 1) * each};
}

// The block of the last segment writes a slot that the one of the first segment reads.
FAMILY_CASE("sm90", "kda: a cluster's pool is initial and final states, bit for bit") {
  for (const bool v_first : {false, true}) {
    KdaCase kda = cluster_case(0, 3);
    kda.cu_seqlens = {0, 40, 240, 640};
    kda.states = KdaCase::pool, kda.v_first = v_first;
    KdaInputs inputs = make_kda_inputs(kda);
    inputs.pool.indices = {4, 1, 7};
    KdaCase plain = kda;
    plain.states = KdaCase::both;
    KdaInputs copies = inputs;
    for (const int64_t slot : inputs.pool.indices) {
      const Array state = state_of(inputs.pool.states, inputs.pool.slots, slot);
      copies.kda.initial_state.insert(copies.kda.initial_state.end(), state.begin(), state.end());
    }
    const Outputs expected = run_cluster(plain, copies), actual = run_cluster(kda, inputs);
    CHECK(actual.at("o") == expected.at("o"));
    for (int64_t n = 0; n < 3; ++n) {
      CHECK(state_of(actual.at("state_pool"), inputs.pool.slots, inputs.pool.indices[n]) ==
            state_of(expected.at("final_state"), 3, n));
    }
  }
}

// A state goes from segment to segment in float32, however little of it decays leave.
FAMILY_CASE("sm90", "kda: a cluster with gates from 0 to -200") {
  for (const double weakest : {0.0, -0.001, -1.0, -4.9, -5.2, -12.0, -40.0, -200.0}) {
    for (const lathe_dtype gate : {LATHE_BF16, LATHE_F32}) {
      KdaCase kda = cluster_case(260, 5);
      kda.gate_dtype = gate, kda.weakest = weakest;
      kda.key_dim = 104;
      check_cluster(kda, 3);
      kda.strong_share = 0.05;
      check_cluster(kda, 4);
    }
  }
}

FAMILY_CASE("sm90", "kda: a cluster with one gate for ever") {
  for (const double gate : {-200.0, -5.0, -0.01}) {
    KdaCase kda = cluster_case(300, 4);
    KdaInputs inputs = make_kda_inputs(kda);
    std::fill(inputs.kda.g.begin(), inputs.kda.g.end(), numbers::rounded(LATHE_BF16, gate));
    INFO("gate " << gate);
    check_kda(kda, inputs, run_cluster(kda, inputs));
  }
}

// The root mean square of the errors.
double error_of(const Array& found, const Array& expected) {
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += std::pow(found[i] - expected[i], 2);
  return std::sqrt(sum / static_cast<double>(found.size()));
}

// Steps that cancel what is there or turn it over, which nothing damps: errors grow with the
// tokens, in a cluster no more than in one walk.
FAMILY_CASE("sm90", "kda: a cluster with one key for ever") {
  for (const double beta : {0.0, 1.0, 1.5, 2.0}) {
    for (const double share : {0.0, 0.01}) {
      KdaCase kda = cluster_case(260, 4);
      kda.l2norm = true, kda.beta_dtype = LATHE_F32;
      KdaInputs inputs = make_kda_inputs(kda);
      Array& k = inputs.kda.k;
      for (size_t i = 128; i < k.size(); ++i) {
        k[i] = numbers::rounded(LATHE_BF16, k[i % 128] + share * k[i]);
      }
      std::fill(inputs.kda.g.begin(), inputs.kda.g.end(), share == 0 ? 0 : -0x1p-15);
      std::fill(inputs.kda.beta.begin(), inputs.kda.beta.end(), beta);
      INFO("beta " << beta << " share " << share);
      const Outputs out = run_cluster(kda, inputs);
      if (beta < 2) {
        check_kda(kda, inputs, out, 1.5);
        continue;
      }
      kda.segments = 1;
      const Outputs walked = run_kda(kda, inputs);
      for (const auto& [name, expected] : kda_reference(kda, inputs)) {
        INFO(name);
        CHECK(error_of(out.at(name), expected) < 1.1 * error_of(walked.at(name), expected));
      }
    }
  }
}

// A segment's map keeps nearly all of a state, of which each link rounds but the off-diagonal.
FAMILY_CASE("sm90", "kda: a cluster over thousands of tokens that hardly decay") {
  KdaCase kda = cluster_case(4096, 8);
  kda.l2norm = true;
  kda.weakest = -1e-4;
  KdaInputs inputs = make_kda_inputs(kda);
  for (double& beta : inputs.kda.beta) beta = numbers::rounded(kda.beta_dtype, 1e-2 * beta);
  check_kda(kda, inputs, run_cluster(kda, inputs));
}

// Segments are whole chunks: where a sequence is cut follows from its own length.
FAMILY_CASE("sm90", "kda: a cluster's bits do not depend on what else is in the batch") {
  for (const int segments : {2, 5, 8}) {
    KdaCase alone = cluster_case(333, segments);
    const KdaInputs whole = make_kda_inputs(alone);
    const Outputs expected = run_cluster(alone, whole);
    KdaCase packed = alone;
    packed.cu_seqlens = {0, 100, 433, 433, 1033};
    KdaInputs inputs = make_kda_inputs(packed, 2);
    for (int i = 0; i < 5; ++i) {
      const Array& from = whole.kda.*kPerToken[i];
      Array& to = inputs.kda.*kPerToken[i];
      std::copy(from.begin(), from.end(), to.begin() + std::ssize(to) / 1033 * 100);
    }
    const Array& state = whole.kda.initial_state;
    std::copy(state.begin(), state.end(), inputs.kda.initial_state.begin() + std::ssize(state));
    const Outputs out = run_cluster(packed, inputs);
    INFO("segments " << segments);
    const Array& o = out.at("o");
    CHECK(Array(o.begin() + 100 * 128, o.begin() + 433 * 128) == expected.at("o"));
    CHECK(state_of(out.at("final_state"), 4, 1) == expected.at("final_state"));
  }
}

// More segments than a cluster has are three launches, as is all that a cluster does not give. Both
// cut here at the same tokens.
FAMILY_CASE("sm90", "kda: a cluster is near the launches that it replaces") {
  KdaCase kda = cluster_case(5 * 64, 5);
  kda.l2norm = true, kda.weakest = -0.1;
  const KdaInputs inputs = make_kda_inputs(kda);
  const Outputs once = run_cluster(kda, inputs);
  kda.segments = 9;  // of which five have tokens
  const Answer answer = run(kda_call(kda, inputs));
  CHECK(answer.spec("kda_forward_cluster") == "");
  CHECK(answer.spec("kda_summary_warpgroups") != "");
  CHECK(answer.spec("kda_merge") != "");
  CHECK(answer.launches.size() == 3);
  check_kda(kda, inputs, answer.outputs);
  for (const auto& [name, values] : answer.outputs) {
    check_rms(name, once.at(name), values, 1.4 * kda_bound(kda, name), 1e-6);
  }
}

}  // namespace
