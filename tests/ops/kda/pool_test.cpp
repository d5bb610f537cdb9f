// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover the pools of kda through lathe.h on the simulator, under every check: slots,
// sources, padding and checkpoints against the recurrence in double, and what must hold bit for
// bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tests/numbers.h"
#include "tests/ops/kda/setups.h"

namespace {

using namespace apitest;
using ref::Array;

const std::vector<KdaSetup> kPools = setups(R"(
    bf16 bf16 bf16 128 2 |
    bf16 f32 f32 64 1 | l2norm bounded factor bias sigmoid v_first
    f16 f32 f16 64 2 | softplus factor sigmoid negative
    f32 f32 f32 64 4 | v_first narrow
    bf16 bf16 f32 128 1 | l2norm softplus factor bias
    f32 bf16 f32 128 2 | l2norm bounded sigmoid narrow
)");

KdaCase pool_case(const KdaSetup& s, uint32_t turn) {
  KdaCase kda = case_of(s);
  kda.states = KdaCase::pool;
  kda.tight = kda.any_gates = false;
  kda.warps = 0;
  constexpr std::array kPieces = {0, 1, 15, 16, 17, 40, 65, 130, 3};
  kda.cu_seqlens = {0};
  for (uint32_t n = 0; n < 5; ++n) {
    kda.cu_seqlens.push_back(kda.cu_seqlens.back() + kPieces[(3 * turn + 2 * n) % kPieces.size()]);
  }
  kda.padding = turn % 3 == 1 ? 9 : 0;
  kda.heads = 1 + turn % 2, kda.group = 1 + turn / 2 % 2;
  kda.key_dim = s.width - s.step() * (turn % 3), kda.value_dim = 16 * s.warps + s.step();
  if (turn % 7 == 3) kda.value_dim = 136;  // two blocks for a head
  kda.index_dtype = turn % 3 == 0 ? LATHE_I64 : LATHE_I32;
  kda.slot_options = static_cast<int>(turn % 8);
  kda.checkpoints = turn % 4;
  kda.gap = turn % 2 != 0 ? 16 : 0;
  kda.wild_slots = turn % 5 == 4;
  kda.segments = turn % 4 == 2 ? 3 : 1;
  kda.pool_dtype = std::array{LATHE_F32, LATHE_BF16, LATHE_F16}[turn / 2 % 3];
  return kda;
}

TEST_CASE("kda: pools, generated, against the recurrence in double") {
  uint32_t turn = 0;
  for (const KdaSetup& s : kPools) {
    for (int i = 0; i < 8; ++i, ++turn) check_case(pool_case(s, turn), 1 + turn);
  }
}

// One sequence after another in slots, without padding.
KdaCase plain_case(std::vector<int64_t> begins) {
  KdaCase kda;
  kda.states = KdaCase::pool, kda.key_dim = 64, kda.value_dim = 60;
  kda.heads = 2, kda.segments = 1, kda.cu_seqlens = std::move(begins);
  return kda;
}

Array state_of(const Array& pool, int64_t slots, int64_t slot) {
  const auto each = std::ssize(pool) / slots;
  return {pool.begin() + slot * each, pool.begin() + (slot + 1) * each};
}

TEST_CASE("kda: a pool is initial and final states, bit for bit, in one segment or several") {
  for (const int segments : {1, 3}) {
    for (const bool v_first : {false, true}) {
      KdaCase kda = plain_case({0, 40, 240});
      kda.segments = segments, kda.v_first = v_first;
      KdaInputs inputs = make_kda_inputs(kda);
      const int64_t slots = inputs.pool.slots;
      inputs.pool.indices = {4, 1};
      KdaCase plain = kda;
      plain.states = KdaCase::both;
      KdaInputs copies = inputs;
      for (const int64_t slot : {4, 1}) {
        const Array state = state_of(inputs.pool.states, slots, slot);
        copies.kda.initial_state.insert(copies.kda.initial_state.end(), state.begin(), state.end());
      }
      const Outputs expected = run_kda(plain, copies), actual = run_kda(kda, inputs);
      CHECK(actual.at("o") == expected.at("o"));
      CHECK(state_of(actual.at("state_pool"), slots, 4) ==
            state_of(expected.at("final_state"), 2, 0));
      CHECK(state_of(actual.at("state_pool"), slots, 1) ==
            state_of(expected.at("final_state"), 2, 1));
    }
  }
}

TEST_CASE("kda: a call from a checkpoint's state is the rest of the call, bit for bit") {
  for (const lathe_dtype element : {LATHE_BF16, LATHE_F32}) {
    for (const int64_t token : {16, 37, 64, 99}) {
      CAPTURE(token);
      KdaCase kda = plain_case({0, 100});
      kda.element = element;
      KdaInputs inputs = make_kda_inputs(kda);
      inputs.pool.indices = {0};
      inputs.pool.cu_checkpoints = {0, 1};
      inputs.pool.checkpoint_tokens = {token}, inputs.pool.checkpoint_slots = {2};
      const Outputs whole = run_kda(kda, inputs);
      check_kda(kda, inputs, whole);
      KdaCase rest = kda;
      rest.cu_seqlens = {0, 100 - token};
      KdaInputs later = kda_slice(inputs, token, 100);
      later.pool.indices = {1}, later.pool.sources = {2};
      later.pool.cu_checkpoints = {}, later.pool.checkpoint_tokens = {};
      later.pool.checkpoint_slots = {};
      later.pool.states = whole.at("state_pool");
      const Outputs out = run_kda(rest, later);
      const Array& o = whole.at("o");
      CHECK(Array(o.end() - std::ssize(out.at("o")), o.end()) == out.at("o"));
      CHECK(state_of(out.at("state_pool"), 3, 1) == state_of(whole.at("state_pool"), 3, 0));
    }
  }
}

// float32 rounds where a state is written alone: a call over two sequences of tokens rounds in
// between, and one over all of them does not.
TEST_CASE("kda: pools of 16 bits are float32 within a call, and keep what nobody writes") {
  for (const lathe_dtype type : {LATHE_BF16, LATHE_F16}) {
    for (const bool v_first : {false, true}) {
      KdaCase kda = plain_case({0, 80, 80});
      kda.element = LATHE_F32, kda.v_first = v_first;
      kda.pool_dtype = type;
      KdaInputs inputs = make_kda_inputs(kda);
      inputs.pool.indices = {3, 1};
      // A sequence without tokens copies bits, NaN's too.
      inputs.pool.sources = {2, 5};
      const auto each = std::ssize(inputs.pool.states) / inputs.pool.slots;
      inputs.pool.states[static_cast<size_t>(5 * each)] = -std::numeric_limits<double>::infinity();
      const Outputs narrow = run_kda(kda, inputs);
      check_kda(kda, inputs, narrow);
      CHECK(state_of(narrow.at("state_pool"), 6, 1) == state_of(inputs.pool.states, 6, 5));
      KdaCase wide = kda;
      wide.pool_dtype = LATHE_F32;
      const Outputs exact = run_kda(wide, inputs);
      CHECK(narrow.at("o") == exact.at("o"));
      Array rounded = state_of(exact.at("state_pool"), 6, 3);
      for (double& value : rounded) value = numbers::rounded(type, value);
      CHECK(state_of(narrow.at("state_pool"), 6, 3) == rounded);
    }
  }
}

TEST_CASE("kda: checkpoints in any order, before the first token, at the last and at one token") {
  KdaCase kda = plain_case({0, 70, 70, 71});
  for (const int segments : {1, 2}) {
    kda.segments = segments;
    KdaInputs inputs = make_kda_inputs(kda);
    ref::KdaPool& pool = inputs.pool;
    pool.slots = 44;
    pool.states = make_kda_inputs(kda, 2).pool.states;
    pool.states.resize(static_cast<size_t>(44 * kda.value_heads() * 64 * 60), 0.5);
    pool.indices = {0, 1, 2}, pool.has_initial_state = {1, 1, 0};
    pool.sources = {0, 3, 3};
    // More than a warp has lanes, in a falling order; then a sequence without tokens, whose state
    // is that of its source.
    for (int64_t token = 70; token > 36; --token) pool.checkpoint_tokens.push_back(token);
    for (const int64_t token : {0, 64, 0, 0, 0, 1}) pool.checkpoint_tokens.push_back(token);
    pool.cu_checkpoints = {0, 36, 38, 40};
    for (int64_t slot = 4; slot < 44; ++slot) {
      pool.checkpoint_slots.push_back(slot < 41 ? slot : -1);
    }
    const Outputs out = run_kda(kda, inputs);
    check_kda(kda, inputs, out);
    CHECK(state_of(out.at("state_pool"), 44, 1) == state_of(pool.states, 44, 3));
  }
}

TEST_CASE("kda: what slots hold that nobody reads reaches nothing, and stays") {
  KdaCase kda = plain_case({0, 33, 33, 50, 60});
  kda.slot_options = 7, kda.checkpoints = 2, kda.gap = 8;
  for (uint64_t seed = 1; seed < 6; ++seed) {
    KdaInputs inputs = make_kda_inputs(kda, seed);
    ref::KdaPool& pool = inputs.pool;
    const auto each = std::ssize(pool.states) / pool.slots;
    for (int64_t slot = 0; slot < pool.slots; ++slot) {
      bool read = false;
      for (int64_t n = 0; n < kda.sequences(); ++n) {
        read = read || (!pool.is_padding(n) && !pool.starts_from_zero(n) && pool.start(n) == slot);
      }
      if (!read) {
        std::fill_n(pool.states.begin() + slot * each, each,
                    std::numeric_limits<double>::infinity());
      }
    }
    check_case(kda, seed);
    check_kda(kda, inputs, run_kda(kda, inputs));
  }
}

TEST_CASE("kda: states of chunks beside a pool's checkpoints") {
  KdaCase kda = plain_case({0, 150});
  kda.chunk_states = true;
  for (const int64_t chunk : {16, 64}) {
    kda.chunk = chunk;
    KdaInputs inputs = make_kda_inputs(kda);
    inputs.pool.indices = {1};
    inputs.pool.cu_checkpoints = {0, 3};
    inputs.pool.checkpoint_tokens = {5, 70, 149}, inputs.pool.checkpoint_slots = {0, 2, -1};
    const Outputs out = run_kda(kda, inputs);
    check_kda(kda, inputs, out);
    KdaInputs plain = inputs;
    plain.kda.initial_state = state_of(inputs.pool.states, inputs.pool.slots, 1);
    check_rms("chunk_states", out.at("chunk_states"), ref::kda_forward(plain.kda).chunk_states,
              kda_bound(kda, "chunk_states"), 1e-6);
  }
}

TEST_CASE("kda: pools without tokens and without sequences") {
  KdaCase kda = plain_case({0, 0, 0});
  kda.slot_options = 1;
  check_case(kda, 3);
  kda.cu_seqlens = {0};
  kda.slot_options = 0;
  check_case(kda, 4);
}

}  // namespace
