// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention_block and its gradients through the C API: what options give is
// held against calls without them and against flash_attention of the same family, bit by bit.
#include <array>

#include "tests/ops/attention/block/block_step.h"

using namespace apitest;

EVERY_FAMILY_CASE("a step over all keys is flash_attention, to the bit") {
  for (const char* causal : {"0", "1"}) {
    CAPTURE(causal);
    Step step(LATHE_BF16);
    step.caller.put("ranges", LATHE_I32, {1, 7}, {0, kQueries, 0, kKeys, kKeys - kQueries, 20, 0});
    step.run("flash_attention_block", with(kForward, {"ranges"}),
             {{"causal", causal}, {"first", "1"}});
    const Values out = step.caller.get("out"), lse = step.caller.get("lse");
    step.caller.put("out", LATHE_BF16, {kRows, kQueries, kHeads, kWidth}, Values(out.size(), NAN));
    step.run("flash_attention", kForward, {{"causal", causal}});
    CHECK(step.caller.get("out") == rounded(LATHE_BF16, out));
    CHECK(step.caller.get("lse") == lse);
  }
}

// Scores and masks by position, head, batch and what is captured.
const char* const kScoreMod = R"(
__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,
                           const Captures& captures) {
  return score + captures.get<0>(kv_idx) * (1 + head + batch) - captures.scalar(1) * q_idx;
}
__device__ float score_mod_bwd(float dscore, float score, int batch, int head, int q_idx,
                               int kv_idx) {
  return dscore;
}
)";
const char* const kMaskMod = R"(
__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {
  return (q_idx + head) / 40 != kv_idx / 50 || (q_idx + kv_idx) % 3 == 0;
}
)";
const char* const kMaskTile = R"(
__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1) {
  return k1 <= (q0 + head) / 40 * 50 ? 2 : 1;
}
)";

// These mods take more registers than a step by warpgroups has, and the forward has them.
FAMILY_CASE("portable", "mods of a step over all keys are flash_attention's, to the bit") {
  for (const bool tiles : {false, true}) {
    CAPTURE(tiles);
    Step step(LATHE_F16);
    step.caller.texts = {{"score_mod", kScoreMod},
                         {"mask_mod", std::string(kMaskMod) + (tiles ? kMaskTile : "")}};
    step.caller.put("capture_0", LATHE_F32, {kKeys}, random_values(LATHE_F32, kKeys, 11));
    step.caller.put("ranges", LATHE_I32, {1, 7}, {0, kQueries, 0, kKeys, kKeys - kQueries, 0, 0});
    const std::map<std::string, std::string> options = {{"window_right", "30"},
                                                        {"scalar_1", "0.01"}};
    std::map<std::string, std::string> first = options;
    first["first"] = "1";
    step.run("flash_attention_block", with(kForward, {"ranges", "capture_0"}), first);
    const Values out = step.caller.get("out"), lse = step.caller.get("lse");
    step.caller.put("out", LATHE_F16, {kRows, kQueries, kHeads, kWidth}, Values(out.size(), NAN));
    step.run("flash_attention", with(kForward, {"capture_0"}), options);
    CHECK(step.caller.get("out") == rounded(LATHE_F16, out));
    CHECK(step.caller.get("lse") == lse);
  }
}

// Two sequences, each a range that begins at its own position 0 and tells its number.
FAMILY_CASE("portable", "mods of packed sequences are told which one they are in") {
  const Values rows = {0, 70, kQueries}, keys = {0, 110, kKeys};
  Values ranges;
  for (const size_t n : {0, 1}) {
    const double qa = rows[n], qb = rows[n + 1], ka = keys[n], kb = keys[n + 1];
    for (const double word : {qa, qb, ka, kb, kb - ka - (qb - qa), 0.0, 0.0})
      ranges.push_back(word);
  }
  Step step(LATHE_F16);
  step.bring(0);
  step.caller.texts = {{"score_mod", kScoreMod}, {"mask_mod", kMaskMod}};
  step.caller.put("capture_0", LATHE_F32, {kKeys}, random_values(LATHE_F32, kKeys, 11));
  step.caller.put("ranges", LATHE_I32, {2, 7}, ranges);
  step.caller.put("range_batch", LATHE_I32, {2}, {0, 1});
  step.caller.put("cu_seqlens_q", LATHE_I32, {3}, rows);
  step.caller.put("cu_seqlens_k", LATHE_I32, {3}, keys);
  step.run("flash_attention_block", with(kForward, {"ranges", "range_batch", "capture_0"}),
           {{"causal", "1"}, {"first", "1"}});
  const Values out = step.caller.get("out"), lse = step.caller.get("lse");
  const std::vector<int64_t> wide = {kQueries, kHeads, kWidth}, narrow = {kKeys, kKeyHeads, kWidth};
  step.caller.put("out", LATHE_F16, wide, Values(out.size(), NAN));
  step.run("flash_attention", with(kForward, {"cu_seqlens_q", "cu_seqlens_k", "capture_0"}),
           {{"causal", "1"}});
  CHECK(step.caller.get("out") == rounded(LATHE_F16, out));
  CHECK(step.caller.get("lse") == lse);

  const Names backward = {"q", "k", "v", "dout", "out", "lse", "capture_0"};
  const auto texts = std::exchange(step.caller.texts, {});
  step.run("flash_attention_delta", {"out", "dout", "lse", "delta"}, {});
  step.caller.texts = texts;
  const Names gradients = {"dq", "dk", "dv"};
  step.run("flash_attention_block_bwd", with(kBackward, {"ranges", "range_batch", "capture_0"}),
           {{"causal", "1"}, {"first", "1"}});
  std::map<std::string, Values> found;
  for (const std::string& name : gradients) found[name] = step.caller.get(name);
  step.caller.put("dq", LATHE_F16, wide, Values(found["dq"].size()));
  step.caller.put("dk", LATHE_F16, narrow, Values(found["dk"].size()));
  step.caller.put("dv", LATHE_F16, narrow, Values(found["dv"].size()));
  step.run("flash_attention", with(backward, with(gradients, {"cu_seqlens_q", "cu_seqlens_k"})),
           {{"causal", "1"}});
  for (const std::string& name : gradients) {
    const Values whole = step.caller.get(name);
    size_t wrong = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      wrong += !(std::abs(whole[i] - found[name][i]) <= 1e-3 * (1 + std::abs(whole[i])));
    }
    CHECK_MESSAGE(wrong == 0, name);
  }
}

EVERY_FAMILY_CASE("a step that leaves multiprocessors to others gives the same bits") {
  std::map<std::string, Values> found[2];
  for (const char* margin : {"0", "8"}) {
    Step step(LATHE_BF16);
    step.run("flash_attention_block", with(kForward, {"ranges"}),
             {{"causal", "1"}, {"sm_margin", margin}});
    step.run("flash_attention_block_bwd", with(kBackward, {"ranges"}),
             {{"causal", "1"}, {"deterministic", "1"}, {"sm_margin", margin}});
    for (const char* name : {"out", "lse", "dq", "dk", "dv"}) {
      found[*margin == '8'][name] = step.caller.get(name);
    }
  }
  CHECK(found[0] == found[1]);
  Step step(LATHE_BF16);
  CHECK_THROWS_WITH(
      step.run("flash_attention_block", with(kForward, {"ranges"}), {{"sm_margin", "100000"}}),
      doctest::Contains("sm_margin is 100000; the device has"));
}

EVERY_FAMILY_CASE("gradients of a step are written where there is nothing to add to") {
  for (const char* deterministic : {"0", "1"}) {
    for (const std::string which : {"first", "first_keys"}) {
      CAPTURE(which);
      const auto result = [&](bool written) {
        Step step(LATHE_F16);
        for (const std::string name : {"dq", "dk", "dv"}) {
          const bool read = which == "first_keys" && name == "dq";
          const int64_t tokens = name == "dq" ? kQueries : kKeys;
          const int64_t heads = name == "dq" ? kHeads : kKeyHeads;
          step.caller.put(name, LATHE_F32, {kRows, tokens, heads, kWidth},
                          Values(kRows * tokens * heads * kWidth, read || !written ? 0.0 : NAN));
        }
        std::map<std::string, std::string> options = {{"deterministic", deterministic}};
        if (written) options[which] = "1";
        step.run("flash_attention_block_bwd", with(kBackward, {"ranges"}), options);
        return std::vector<Values>{step.caller.get("dk"), step.caller.get("dv"),
                                   step.caller.get("dq")};
      };
      const std::vector<Values> found = result(true), expected = result(false);
      CHECK(found[0] == expected[0]);
      CHECK(found[1] == expected[1]);
      if (*deterministic == '1') CHECK(found[2] == expected[2]);
      size_t wrong = 0;
      for (size_t i = 0; i < found[2].size(); ++i) {
        wrong += !(std::abs(found[2][i] - expected[2][i]) <= 1e-4);
      }
      CHECK(wrong == 0);
    }
  }
}

EVERY_FAMILY_CASE("gradients of steps without rows, keys or ranges are 0 where they are written") {
  Caller caller;
  const std::vector<std::array<int64_t, 3>> calls = {{5, 7, 0}, {5, 7, 1}, {5, 0, 1}, {0, 7, 1}};
  for (const auto& [rows, keys, ranges] : calls) {
    for (const char* deterministic : {"0", "1"}) {
      for (const char* which : {"first", "first_keys"}) {
        const int64_t q = rows * kHeads * kWidth, k = keys * kKeyHeads * kWidth;
        caller.put("q", LATHE_BF16, {1, rows, kHeads, kWidth}, Values(q, 1));
        caller.put("dout", LATHE_BF16, {1, rows, kHeads, kWidth}, Values(q, 1));
        caller.put("k", LATHE_BF16, {1, keys, kKeyHeads, kWidth}, Values(k, 1));
        caller.put("v", LATHE_BF16, {1, keys, kKeyHeads, kWidth}, Values(k, 1));
        caller.put("ranges", LATHE_I32, {ranges, 7}, Values(ranges * 7, 0));
        caller.put("lse", LATHE_F32, {1, kHeads, rows}, Values(rows * kHeads, 1));
        caller.put("delta", LATHE_F32, {1, kHeads, rows}, Values(rows * kHeads, 1));
        caller.put("dq", LATHE_F32, {1, rows, kHeads, kWidth}, Values(q, 3));
        caller.put("dk", LATHE_F32, {1, keys, kKeyHeads, kWidth}, Values(k, NAN));
        caller.put("dv", LATHE_F32, {1, keys, kKeyHeads, kWidth}, Values(k, NAN));
        caller.run("flash_attention_block_bwd", with(kBackward, {"ranges"}),
                   {{"deterministic", deterministic}, {which, "1"}});
        CHECK(caller.get("dq") == Values(q, std::string(which) == "first" ? 0 : 3));
        CHECK(caller.get("dk") == Values(k, 0));
        CHECK(caller.get("dv") == Values(k, 0));
      }
    }
  }
}
