// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda without a device: every refusal by table, what a problem becomes,
// workspaces, and calls that end before a launch.
#include "templates/params/kda.h"
#include "tests/ops/kda/problems.h"

namespace {

using lathe::Code;
using namespace test;

const Tensors kForward = kKda;
const Declaration kDo = {"do", LATHE_BF16, {-1, -1, 4, 32}};
const Declaration kDq = {"dq", LATHE_BF16, {-1, -1, 2, 64}};
const Declaration kFinal = {"final_state", LATHE_F32, {-1, 4, 64, 32}};
const Declaration kAlog = {"A_log", LATHE_F32, {4}};
const Declaration kBias = {"dt_bias", LATHE_F32, {256}};
const Declaration kOffsets = {"cu_seqlens", LATHE_I32, {-1}};
const Declaration kChunks = {"chunk_states", LATHE_F32, {-1, -1, 4, 64, 32}};
const Declaration kSavedValues = {"saved_values", LATHE_BF16, {-1, -1, 4, 32}};
const Declaration kSavedStates = {"saved_states", LATHE_BF16, {-1, 4, 32, 64}};
const Tensors kBoth = with(kForward, {kDo, kDq});
const Tensors kBackward = without(kBoth, "o");

const Requests<lathe::KdaRequest> request = {"kda", lathe::kda_request};

struct Fixture : KdaFixture {
  explicit Fixture(const Tensors& tensors, const Options& options = {})
      : KdaFixture("kda", tensors, options) {}
  void fill(int64_t batch, int64_t tokens, int64_t value_heads = 4) {
    KdaFixture::fill(batch, tokens, value_heads);
    arrays["dq"] = arrays["q"];
    arrays["do"] = arrays["saved_values"] = arrays["o"];
  }
};

TEST_CASE("kda: tensors that do not fit are refused by name, with what is allowed") {
  request.check_refused(bad_tensors());
  request.check_refused({
      {without(kForward, "o"), {}, {"nothing to compute", "dinitial_state"}},
      {with(kForward, {{"chunk_states", LATHE_F32, {-1, -1, 4, 32, 64}}}),
       {},
       {"chunk_states", "K is 32", "K is 64"}},
      {with(kForward, {{"chunk_states", LATHE_F32, {-1, 4, 64, 32}}}),
       {},
       {"chunk_states", "rank 4", "[B,NT,HV,K,V]"}},
      {with(kForward,
            {{"v", LATHE_BF16, {-1, 100, 4, 32}}, {"chunk_states", LATHE_F32, {-1, 3, 4, 64, 32}}}),
       {},
       {"chunk_states has NT = 3", "= 2 for T = 100 and chunk_size 64"}},
      // Gradients.
      {with(kForward, {kDo}), {}, {"do is declared, but no gradient is", "dq", "dinitial_state"}},
      {with(kForward, {kDq}), {}, {"dq is declared without do"}},
      {with(kForward, {{"dht", LATHE_F32, {-1, 4, 64, 32}}}), {}, {"dht", "without do"}},
      {with(kBoth, {{"dht", LATHE_F16, {-1, 4, 64, 32}}}), {}, {"dht", "f16", "f32"}},
      {with(kBoth, {{"do", LATHE_F32, {-1, -1, 4, 32}}}), {}, {"do", "f32", "bf16", "of q"}},
      {with(kBoth, {{"dg", LATHE_BF16, {-1, -1, 4, 64}}}), {}, {"dg", "bf16", "f32", "of g"}},
      {with(kBoth, {{"dbeta", LATHE_F32, {-1, -1, 4}}}), {}, {"dbeta", "f32", "f16", "of beta"}},
      {with(kBoth, {{"dA_log", LATHE_F32, {4}}}), {}, {"dA_log is declared without A_log"}},
      {with(kBoth, {{"ddt_bias", LATHE_F32, {256}}}), {}, {"ddt_bias", "without dt_bias"}},
      {with(kBackward, {kFinal}), {}, {"final_state is declared without o"}},
      {with(kBackward, {kChunks}), {}, {"chunk_states is declared without o"}},
      // Tensors that one call leaves for another.
      {with(kBoth, {kSavedValues}), {}, {"saved_values is declared without saved_states"}},
      {with(kBoth, {kSavedValues, kSavedStates}), {}, {"disable_recompute is 0", "allowed is 1"}},
      {kBackward, {{"disable_recompute", "1"}}, {"saved_values is not declared"}},
      {with(kBoth, {{"v", LATHE_BF16, {3, 100, 4, 32}},
                    kSavedValues,
                    {"saved_states", LATHE_BF16, {5, 4, 32, 64}}}),
       {{"disable_recompute", "1"}},
       {"saved_states has 5 slots", "B * ceil(T / 64) = 6"}},
      {with(kBoth, {{"v", LATHE_BF16, {1, 100, 4, 32}},
                    {"cu_seqlens", LATHE_I64, {6}},
                    kSavedValues,
                    {"saved_states", LATHE_BF16, {5, 4, 32, 64}}}),
       {{"disable_recompute", "1"}},
       {"saved_states has 5 slots", "T / 64 + N = 6"}},
  });
}

TEST_CASE("kda: a pool excludes states and gradients, and needs offsets and slots") {
  const Declaration pool = {"state_pool", LATHE_F32, {-1, 4, 64, 32}};
  const Declaration indices = {"state_indices", LATHE_I32, {-1}};
  const Declaration offsets = {"cu_checkpoints", LATHE_I32, {-1}};
  const Declaration tokens = {"checkpoint_tokens", LATHE_I32, {-1}};
  const Declaration slots = {"checkpoint_slots", LATHE_I32, {-1}};
  const Tensors pooled = with(kForward, {kOffsets, pool, indices});
  request.check_refused({
      {with(kForward, {pool, indices}), {}, {"state_pool", "without cu_seqlens"}},
      {with(kForward, {kOffsets, pool}), {}, {"state_pool", "without state_indices"}},
      {with(kForward, {kOffsets, indices}), {}, {"state_indices", "without state_pool"}},
      {with(pooled, {kFinal}), {}, {"final_state", "with state_pool"}},
      {with(pooled, {{"initial_state", LATHE_F32, {-1, 4, 64, 32}}}),
       {},
       {"initial_state", "with state_pool"}},
      {with(pooled, {kDo, kDq}), {}, {"do is declared with state_pool", "no gradient"}},
      {with(pooled, {kSavedValues, kSavedStates}),
       {{"disable_recompute", "1"}},
       {"saved_values", "with state_pool"}},
      {pooled,
       {{"warmup_segments", "4"}, {"use_qk_l2norm_in_kernel", "1"}},
       {"warmup_segments is 4", "state_pool"}},
      {with(pooled, {offsets, tokens}), {}, {"cu_checkpoints", "without checkpoint_slots"}},
      {with(pooled, {offsets, slots}), {}, {"cu_checkpoints", "without checkpoint_tokens"}},
      {with(pooled, {tokens, slots}), {}, {"checkpoint_tokens", "without cu_checkpoints"}},
      {with(pooled, {offsets, {"checkpoint_tokens", LATHE_I64, {-1}}, slots}),
       {},
       {"checkpoint_tokens", "i64", "i32"}},
      {with(pooled, {{"source_indices", LATHE_I64, {-1}}}),
       {},
       {"source_indices", "i64", "of state_indices"}},
      {with(pooled, {{"state_indices", LATHE_I32, {-1, -1}}}), {}, {"state_indices", "rank 2"}},
      {kForward, {{"null_slot", "0"}}, {"null_slot is 0", "state_pool"}},
  });
  const lathe::KdaRequest asked = request.accepted(pooled, {{"null_slot", "3"}});
  CHECK(asked.problem.pool);
  CHECK_FALSE(asked.problem.checkpoints);
  CHECK(asked.problem.final_state);
  CHECK(asked.null_slot == 3);
}

TEST_CASE("kda: options out of range, and options that need another, are refused") {
  request.check_refused(bad_options());
  request.check_refused({
      {kForward, {{"chunk_size", "48"}}, {"chunk_size", "'48'", "64|16|32"}},
      {kForward, {{"chunk_size", "0"}}, {"chunk_size", "'0'"}},
      {kForward, {{"chunk_size", "128"}}, {"chunk_size", "'128'"}},
      {kForward, {{"segments", "33"}}, {"segments", "'33'", "0|[1,33)"}},
      {kForward, {{"segments", "-1"}}, {"segments", "'-1'"}},
      {kForward, {{"warmup_segments", "40"}}, {"warmup_segments", "'40'"}},
      {kForward, {{"deterministic", "2"}}, {"deterministic", "'2'", "1|0"}},
      {kForward, {{"output_chunk_states", "1"}}, {"output_chunk_states is 1", "not declared"}},
      {with(kForward, {kChunks}), {{"output_chunk_states", "0"}}, {"output_chunk_states is 0"}},
      {kForward, {{"warmup_segments", "4"}}, {"warmup_segments is 4", "use_qk_l2norm_in_kernel"}},
      {kBoth,
       {{"warmup_segments", "4"}, {"use_qk_l2norm_in_kernel", "1"}},
       {"warmup_segments is 4", "do is declared"}},
      {with(kForward, {kSavedValues, kSavedStates}),
       {{"warmup_segments", "4"}, {"disable_recompute", "1"}, {"use_qk_l2norm_in_kernel", "1"}},
       {"warmup_segments is 4", "saved_values is declared"}},
      {kForward,
       {{"warmup_segments", "4"}, {"segments", "2"}, {"use_qk_l2norm_in_kernel", "1"}},
       {"warmup_segments is 4 and segments is 2"}},
  });
  request.check_refused(
      {kForward, {}, {"multiples of 4 bytes", "kda", "rows of q, k, v", "pieces of 8"}},
      Code::unsupported, 4);
}

TEST_CASE("kda: a problem becomes flags of the code and numbers of the launch") {
  const lathe::KdaRequest plain = request.accepted(kForward, {{"safe_gate", "1"}});
  CHECK(plain.problem.element == lathe::Dtype::bf16);
  CHECK(plain.problem.beta == lathe::Dtype::f16);
  CHECK(plain.problem.key_dim == 64);
  CHECK(plain.problem.value_dim == 32);
  check_flags(true, {plain.problem.forward, plain.problem.grouped});
  check_flags(false, {plain.problem.saves, plain.problem.backward});
  CHECK(plain.chunk_size == 64);
  CHECK(plain.scale == 0.125f);

  const Tensors all = with(kBoth, {kAlog,
                                   kBias,
                                   kOffsets,
                                   kFinal,
                                   kChunks,
                                   {"initial_state", LATHE_F32, {-1, 4, 64, 32}},
                                   {"dht", LATHE_F32, {-1, 4, 64, 32}},
                                   {"dA_log", LATHE_F32, {4}},
                                   {"ddt_bias", LATHE_F32, {256}},
                                   {"dinitial_state", LATHE_F32, {-1, 4, 64, 32}}});
  const lathe::KdaRequest rich = request.accepted(all, {{"use_gate_in_kernel", "1"},
                                                        {"lower_bound", "-5"},
                                                        {"use_beta_sigmoid_in_kernel", "1"},
                                                        {"allow_neg_eigval", "1"},
                                                        {"chunk_size", "16"},
                                                        {"deterministic", "0"},
                                                        {"segments", "1"}});
  const lathe::KdaProblem& problem = rich.problem;
  CHECK(problem.gate_kind == lathe::kKdaGateBounded);
  check_flags(true, {problem.packed, problem.A_log, problem.dt_bias, problem.sigmoid,
                     problem.initial_state, problem.forward, problem.final_state,
                     problem.chunk_states, problem.saves, problem.backward, problem.dht,
                     problem.dinitial_state, problem.dA_log, problem.ddt_bias});
  CHECK_FALSE(rich.saved_outside);
  CHECK(rich.beta_factor == 2);
  CHECK(rich.chunk_size == 16);
  CHECK(rich.segments == 1);
  const lathe::KdaRequest soft =
      request.accepted(with(kForward, {kAlog}), {{"use_gate_in_kernel", "1"}});
  CHECK(soft.problem.gate_kind == lathe::kKdaGateSoftplus);
}

TEST_CASE("kda: which walks a backward makes") {
  CHECK(request.accepted(kBackward).problem.recomputes());
  CHECK_FALSE(request.accepted(kBoth).problem.recomputes());
  const Tensors saved = {kSavedValues, kSavedStates};
  const Options keep = {{"disable_recompute", "1"}};
  const lathe::KdaRequest left = request.accepted(with(kForward, saved), keep);
  check_flags(true, {left.problem.saves, left.saved_outside});
  const lathe::KdaRequest read = request.accepted(with(kBackward, saved), keep);
  CHECK(read.problem.given_saved);
  CHECK_FALSE(read.problem.recomputes());
  CHECK(request.accepted(with(kBoth, saved), keep).problem.saves);
  // Nobody to leave anything for.
  CHECK_FALSE(request.accepted(kForward, keep).problem.saves);
  // Who reads and who writes them.
  const auto written = [&](const Tensors& tensors) {
    const Builder builder = declared("kda", tensors, keep);
    return builder.problem->writes(lathe::kda::saved_values);
  };
  CHECK(written(with(kForward, saved)));
  CHECK(written(with(kBoth, saved)));
  CHECK_FALSE(written(with(kBackward, saved)));
}

TEST_CASE("kda: rows come in the widest pieces that widths and strides allow") {
  const auto pieces = [](int64_t keys, int64_t values, lathe_dtype gate, int alignment) {
    const Tensors tensors = {
        {"q", LATHE_BF16, {-1, -1, 1, keys}},   {"k", LATHE_BF16, {-1, -1, 1, keys}},
        {"v", LATHE_BF16, {-1, -1, 1, values}}, {"g", gate, {-1, -1, 1, keys}},
        {"beta", LATHE_F32, {-1, -1, 1}},       {"o", LATHE_BF16, {-1, -1, 1, values}}};
    const lathe::KdaRequest found = request.accepted(tensors, {}, alignment);
    CHECK_FALSE(found.problem.grouped);
    return found.problem.vector_bytes;
  };
  CHECK(pieces(64, 128, LATHE_F32, 16) == 16);
  CHECK(pieces(64, 128, LATHE_F32, 8) == 8);
  CHECK(pieces(60, 128, LATHE_F32, 16) == 8);
  CHECK(pieces(64, 100, LATHE_BF16, 16) == 8);
}

TEST_CASE("kda: nothing to write, no launch") {
  Fixture fixture(kBoth);
  fixture.fill(0, 5);
  CHECK(fixture.run().ok());
  fixture.fill(3, 0);
  CHECK(fixture.run().ok());
}

TEST_CASE("kda: calls that do not fit are refused before a launch") {
  check_calls(Fixture(kBoth));

  Fixture saved(with(kBoth, {kChunks, kSavedValues, kSavedStates}), {{"disable_recompute", "1"}});
  const auto fill = [&](int64_t chunks, int64_t slots) {
    saved.fill(2, 70);
    saved.arrays["chunk_states"] = Array(LATHE_F32, {2, chunks, 4, 64, 32});
    saved.arrays["saved_states"] = Array(LATHE_BF16, {slots, 4, 32, 64});
  };
  fill(1, 4);
  saved.check_refused({"chunk_states has NT = 1", "= 2 for T = 70"});
  fill(2, 3);
  saved.check_refused({"saved_states has 3 slots", "= 4 for T = 70"});

  // Heads that only the calls tell.
  Tensors open = kBoth;
  for (auto& each : open) {
    if (each.name == "v" || each.name == "g" || each.name == "o" || each.name == "do" ||
        each.name == "beta") {
      each.shape[2] = -1;
    }
  }
  Fixture heads(open);
  heads.fill(2, 5, 5);
  heads.check_refused({"HV = 5", "H = 2"});
  heads.fill(2, 5, 0);
  heads.check_refused({"HV = 0", "H = 2"});
}

TEST_CASE("kda: the workspace holds what the walks leave, and grows with capacities alone") {
  const auto up = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
  const size_t values = up(2 * 70 * 4 * 32 * 2), states = up(4 * 4 * 32 * 64 * 2);
  Fixture forward(kForward);
  forward.fill(2, 70);
  CHECK(*forward.workspace() == 0);
  Fixture both(kBoth);
  both.fill(2, 70);
  CHECK(*both.workspace() == 2 * (values + states));
  both.fill(2, 128);
  CHECK(*both.workspace() > 2 * (values + states));
  Fixture outside(with(kBoth, {kSavedValues, kSavedStates}), {{"disable_recompute", "1"}});
  outside.fill(2, 70);
  outside.arrays["saved_states"] = Array(LATHE_BF16, {4, 4, 32, 64});
  CHECK(*outside.workspace() == values + states);
  // Packed, the number of sequences is part of the capacity, and their lengths are not.
  Fixture packed(with(kBackward, {kOffsets}));
  packed.fill(1, 140);
  packed.arrays["cu_seqlens"] = Array(LATHE_I32, {4});
  CHECK(*packed.workspace() == 2 * (up(140 * 4 * 32 * 2) + up((140 / 64 + 3) * 4 * 32 * 64 * 2)));
}

}  // namespace
