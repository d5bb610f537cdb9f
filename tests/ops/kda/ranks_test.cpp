// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda over ranks is kda on one rank: values and gradients within the rounding of the exchanged
// states, and the same bits as its parts one after another.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/ops/kda/rank_cases.h"

namespace {

using namespace apitest;
using Parts = std::vector<int64_t>;

std::string text(const Parts& parts) {
  std::string out = " over";
  for (const int64_t part : parts) out += " " + std::to_string(part);
  return out;
}

void equals_one_rank(const KdaCase& kda, const Parts& parts, uint64_t seed = 1) {
  const std::string where = kda.text() + text(parts);
  INFO(where);
  const KdaInputs inputs = lasting_inputs(kda, seed);
  check_ranks(kda, inputs, run_kda_ranks(kda, inputs, parts, LATHE_REDUCE_PARAMETER_GRADS));
}

Parts even(int64_t tokens, int64_t world) {
  Parts parts;
  for (int64_t r = 0; r < world; ++r) {
    parts.push_back((r + 1) * tokens / world - r * tokens / world);
  }
  return parts;
}

// Offsets or parts: some of them empty, some very short.
std::vector<int64_t> random_lengths(std::mt19937& random, int64_t total, int64_t count) {
  std::vector<int64_t> cuts = {0, total};
  while (static_cast<int64_t>(cuts.size()) < count + 1) {
    const auto near = cuts[random() % cuts.size()];
    const auto any = static_cast<int64_t>(random() % static_cast<uint64_t>(total + 1));
    cuts.push_back(random() % 3 == 0 ? near : any);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}
Parts parts_of(const std::vector<int64_t>& cuts) {
  Parts parts;
  for (size_t i = 1; i < cuts.size(); ++i) parts.push_back(cuts[i] - cuts[i - 1]);
  return parts;
}

}  // namespace

TEST_CASE("kda over ranks: one sequence over all of them") {
  for (const int64_t world : {1, 2, 3, 4, 8})
    equals_one_rank(fused_case({0, 150}), even(150, world));
  for (const int64_t world : {2, 4, 8}) equals_one_rank(plain_case(2, 90), even(90, world));
}

TEST_CASE("kda over ranks: packed sequences, empty ones and parts of any length") {
  std::mt19937 random(1);
  for (const int64_t world : {2, 3, 4, 8}) {
    const auto cu = random_lengths(random, 140, 2 + static_cast<int64_t>(random() % 5));
    equals_one_rank(fused_case(cu), parts_of(random_lengths(random, 140, world)), world);
  }
  // Ends of sequences at ends of parts, empty ones there, single tokens, empty ranks at both ends.
  equals_one_rank(fused_case({0, 0, 64, 64, 96, 130, 130}), {0, 64, 32, 0, 34, 0});
  equals_one_rank(fused_case({0, 1, 70, 71}), {1, 1, 67, 1, 1});
  equals_one_rank(fused_case({0, 100, 200}), {0, 30, 140, 30, 0});
}

TEST_CASE("kda over ranks: rows of a batch with empty and short parts") {
  equals_one_rank(plain_case(3, 70), {0, 1, 40, 0, 29});
  equals_one_rank(plain_case(2, 0), {0, 0});
}

TEST_CASE("kda over ranks: forward and backward apart, with what the forward saved and without") {
  for (const bool saved : {false, true}) {
    KdaCase kda = fused_case({0, 20, 130, 150});
    kda.apart = true, kda.saved = saved;
    equals_one_rank(kda, {50, 30, 70});
  }
}

TEST_CASE("kda over ranks: in segments on each of them") {
  for (const int segments : {2, 3}) {
    KdaCase kda = fused_case({0, 30, 500, 520});
    kda.segments = segments;
    equals_one_rank(kda, {170, 200, 150});
  }
  KdaCase rows = plain_case(2, 400);
  rows.segments = 2;
  equals_one_rank(rows, {90, 160, 150});
}

TEST_CASE("kda over ranks: states at the starts of chunks, where parts begin with them") {
  KdaCase kda = plain_case(2, 100);
  kda.backward = false, kda.chunk_states = true, kda.chunk = 16;
  equals_one_rank(kda, {32, 0, 48, 20});
  KdaCase packed = fused_case({0, 20, 20, 90});
  packed.backward = false, packed.chunk_states = true, packed.chunk = 32;
  equals_one_rank(packed, {20, 32, 38});
  const KdaInputs inputs = make_kda_inputs(packed);
  CHECK_THROWS_WITH(run_kda_ranks(packed, inputs, {20, 33, 37}),
                    doctest::Contains("rank 2 begins 33 tokens into sequence 2"));
}

// The state that a part hands on, from calls of one rank: E is its final state from the state that
// it begins with or 0, and M that of no values and the unit matrix.
Outputs one_after_another(const KdaCase& kda, const KdaInputs& inputs, const Parts& parts) {
  using ref::Array;
  const auto keys = static_cast<size_t>(kda.key_dim), size = keys * keys;
  const auto heads = static_cast<size_t>(kda.value_heads());
  Outputs out;
  Array state = inputs.kda.initial_state;
  int64_t begin = 0;
  for (const int64_t tokens : parts) {
    KdaCase part = kda;
    part.cu_seqlens = {0, tokens}, part.tokens = tokens;
    const KdaInputs own = kda_slice(inputs, begin, begin + tokens);
    const auto call = [&](const Array& from, bool values) {
      KdaInputs given = own;
      given.kda.initial_state = from;
      if (!values) std::fill(given.kda.v.begin(), given.kda.v.end(), 0.0);
      return run_kda(part, given);
    };
    const Outputs here = call(state, true);
    out["o"].insert(out["o"].end(), here.at("o").begin(), here.at("o").end());
    out["final_state"] = here.at("final_state");
    if (begin == 0) {
      state = here.at("final_state");
    } else {
      Array unit(heads * size);
      for (size_t i = 0; i < heads * keys; ++i) unit[i * keys + i % keys] = 1;
      const Array map = call(unit, false).at("final_state");
      const Array end = call(Array(heads * size), true).at("final_state");
      Array next(heads * size);
      for (size_t i = 0; i < next.size(); ++i) {  // [HV, K, V], K = V
        const size_t head = i / size * size, d = i % size / keys, v = i % keys;
        float sum = 0;
        for (size_t e = 0; e < keys; ++e) {
          sum = std::fma(static_cast<float>(state[head + e * keys + v]),
                         static_cast<float>(map[head + d * keys + e]), sum);
        }
        next[i] = sum + static_cast<float>(end[i]);
      }
      state = std::move(next);
    }
    begin += tokens;
  }
  return out;
}

TEST_CASE("kda over ranks: bit for bit its parts one after another") {
  KdaCase kda = fused_case({0, 130});
  kda.value_dim = kda.key_dim;
  kda.backward = kda.dht = false;
  const KdaInputs inputs = lasting_inputs(kda, 1);
  for (const Parts& parts : {Parts{30, 100}, Parts{64, 1, 40, 25}, Parts{10, 20, 30, 30, 40}}) {
    INFO(text(parts));
    const Outputs many = run_kda_ranks(kda, inputs, parts);
    const Outputs chain = one_after_another(kda, inputs, parts);
    CHECK(many.at("o") == chain.at("o"));
    CHECK(many.at("final_state") == chain.at("final_state"));
  }
}

TEST_CASE("kda over ranks: repeatable, also as a graph") {
  const KdaCase kda = fused_case({0, 40, 150});
  const KdaInputs inputs = lasting_inputs(kda, 1);
  const Parts parts = {40, 30, 50, 30};
  const unsigned sums = LATHE_REDUCE_PARAMETER_GRADS;
  const Outputs first = run_kda_ranks(kda, inputs, parts, sums);
  CHECK(run_kda_ranks(kda, inputs, parts, sums) == first);
  CHECK(run_kda_ranks(kda, inputs, parts, sums, true) == first);
}

TEST_CASE("kda over ranks: what is refused") {
  KdaCase kda = fused_case({0, 40});
  kda.backward = kda.dht = false;
  const KdaInputs inputs = lasting_inputs(kda, 1);
  KdaCase early = kda;
  early.segments = 0, early.warmup_segments = 2;
  CHECK_THROWS_WITH(run_kda_ranks(early, inputs, {20, 20}),
                    doctest::Contains("option warmup_segments is set and the problem has a group"));
}
