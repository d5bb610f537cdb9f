// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover score_mod and mask_mod through the C API: what options say as well equals them
// bit for bit with as many products in the kernels that have both, everything else equals plain
// loops in double; and what a mod may not be.
#include "tests/numbers.h"
#include "tests/ops/attention/mods/mods_case.h"

using namespace apitest;

FAMILY_CASE("portable",
            "a sliding window as a mask_mod is the option's, and visits as many tiles") {
  const Answer expected = check_window(dense({}), 2);
  CHECK(run(dense({})).total("tensor_ops") > expected.total("tensor_ops"));  // it did skip
}

FAMILY_CASE("portable", "documents as a mask_mod over captured numbers are packed sequences") {
  constexpr int64_t kTokens = 512, kHeads = 2, kWidth = 64;
  Call packed, masked = dense({1, kTokens, kTokens, kHeads, kHeads, kWidth});
  for (const char* name : {"q", "k", "v"}) {
    packed.put(name, LATHE_F16, {kTokens, kHeads, kWidth}, masked.tensors.at(name).values);
  }
  packed.want("out", LATHE_F16, {kTokens, kHeads, kWidth});
  packed.want("lse", LATHE_F32, {kHeads, kTokens});
  packed.put("cu_seqlens_q", LATHE_I32, {4}, {0, 128, 128, kTokens});
  packed.put("cu_seqlens_k", LATHE_I32, {4}, {0, 128, 128, kTokens});
  Values documents(kTokens, 7);
  std::fill(documents.begin(), documents.begin() + 128, -1);
  masked.texts["mask_mod"] =
      "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx, const Captures& c) {\n"
      "  return c.get<2>(q_idx) == c.get<2>(kv_idx);\n}\n";
  const Answer expected = run(packed);
  for (const lathe_dtype dtype : {LATHE_I32, LATHE_I64}) {
    masked.put("capture_2", dtype, {kTokens}, documents);
    const Answer found = run(masked);
    check_same(found.outputs, expected.outputs);
    CHECK(found.total("tensor_ops") == expected.total("tensor_ops"));
  }
}

FAMILY_CASE("portable",
            "a soft-capped ALiBi as a score_mod is the options', and does as many products") {
  Call option = dense({}), mod = dense({});
  option.options = {{"causal", "1"}, {"softcap", "20"}, {"softmax_scale", "0.7"}};
  option.put("alibi_slopes", LATHE_F32, {2}, {0.5, 0.3});
  mod.options = {{"causal", "1"}, {"softmax_scale", "0.7"}, {"scalar_3", "20"}};
  mod.put("capture_0", LATHE_F32, {2}, {0.5, numbers::rounded(LATHE_F32, 0.3)});
  mod.texts["score_mod"] =
      "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
      "                           const Captures& captures) {\n"
      "  return alibi(softcap(score, captures.scalar(3)), captures.get<0>(head), q_idx - kv_idx);\n"
      "}\n";
  const Answer expected = run(option), found = run(mod);
  check_same(found.outputs, expected.outputs);
  CHECK(found.total("tensor_ops") == expected.total("tensor_ops"));
  CHECK(found.launches.size() == 1);

  // Constants in the text, too, and the option and the mod together.
  option.tensors.erase("alibi_slopes");
  mod.tensors.erase("capture_0");
  mod.texts["score_mod"] =
      "constexpr float kCap = 20;\n"
      "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx) {\n"
      "  return softcap(score, kCap);\n}\n";
  check_same(run(mod).outputs, run(option).outputs);
}

FAMILY_CASE("portable",
            "any mask, any bias, heads that share a tile, a window: against plain loops") {
  const Sizes s{2, 37, 150, 6, 2, 64};
  Call call = dense(s);
  call.options = {{"window_left", "120"}, {"scalar_1", "-0.25"}};
  Values bias(6), allowed(150);
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = 0.25 * static_cast<double>(i) - 0.5;
  for (size_t i = 0; i < allowed.size(); ++i) allowed[i] = i / 16 % 3 == 1 ? 0 : 1;
  call.put("capture_0", LATHE_BF16, {6}, bias);
  call.put("capture_1", LATHE_I32, {150}, allowed);
  call.texts["score_mod"] =
      "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
      "                           const Captures& captures) {\n"
      "  const float bias = captures.get<0>(head) + captures.get<0>(-1) + captures.get<0>(6);\n"
      "  return score + bias * (kv_idx % 5) + captures.scalar(1) * batch * (q_idx % 3);\n}\n";
  call.texts["mask_mod"] =
      "__device__ bool helper(int i) { return i % 7 != 3; }\n"
      "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx,\n"
      "                         const Captures& captures) {\n"
      "  return captures.get<1>(kv_idx) != 0 && (helper(q_idx + kv_idx) || head == 1);\n}\n";
  ref::Attention a = plain(call, s);
  a.window_left = 120;
  a.score_mod = [&](double x, int64_t b, int64_t h, int64_t i, int64_t j) {
    return x + bias[h] * static_cast<double>(j % 5) - 0.25 * static_cast<double>(b * (i % 3));
  };
  a.mask_mod = [&](int64_t, int64_t h, int64_t i, int64_t j) {
    return allowed[j] != 0 && ((i + j) % 7 != 3 || h == 1);
  };
  check_against(run(call), a);
  // The same kernels for other numbers, lengths and arrays.
  call.options["scalar_1"] = "2";
  call.put("capture_1", LATHE_I32, {100}, Values(allowed.begin(), allowed.begin() + 100));
  a.score_mod = [&](double x, int64_t b, int64_t h, int64_t i, int64_t j) {
    return x + bias[h] * static_cast<double>(j % 5) + 2 * static_cast<double>(b * (i % 3));
  };
  a.mask_mod = [&](int64_t, int64_t h, int64_t i, int64_t j) {  // nothing beyond the array
    return j < 100 && allowed[j] != 0 && ((i + j) % 7 != 3 || h == 1);
  };
  const Answer again = run(call);
  CHECK(again.compiled == 0);
  check_against(again, a);
}

FAMILY_CASE("portable", "decoding over pages with a bias and a mask: against plain loops") {
  constexpr int64_t kBatch = 2, kQueries = 3, kHeads = 4, kKeyHeads = 2, kWidth = 64;
  constexpr int64_t kPage = 16, kPages = 11, kTable = 6, kKeyRow = kKeyHeads * kWidth;
  const Values lengths = {70, 33}, table = {3, 9, 0, 5, 1, 0, 7, 2, 10, 0, 0, 0};
  Call call;
  call.op = "flash_attention_decode";
  call.draw("q", LATHE_F16, {kBatch, kQueries, kHeads, kWidth}, 1);
  call.draw("k_cache", LATHE_F16, {kPages, kPage, kKeyHeads, kWidth}, 2);
  call.draw("v_cache", LATHE_F16, {kPages, kPage, kKeyHeads, kWidth}, 3);
  call.put("block_table", LATHE_I32, {kBatch, kTable}, table);
  call.put("cache_seqlens", LATHE_I32, {kBatch}, lengths);
  call.put("capture_0", LATHE_F32, {kHeads}, {0.5, -0.5, 1, 0});
  call.want("out", LATHE_F16, {kBatch, kQueries, kHeads, kWidth});
  call.want("lse", LATHE_F32, {kBatch, kHeads, kQueries});
  call.texts["score_mod"] =
      "__device__ float score_mod(float x, int batch, int head, int q, int k, const Captures& c) "
      "{\n"
      "  return x + c.get<0>(head) * (k % 4) + q + batch;\n}\n";
  call.texts["mask_mod"] =
      "__device__ bool mask_mod(int batch, int head, int q, int k) { return (q + k) % 3 != 1; }\n";
  ref::Attention a;
  a.heads = kHeads, a.kv_heads = kKeyHeads, a.head_dim = a.value_dim = kWidth;
  a.packed = false, a.scale = 0.125, a.begin_q = {0, 3, 6}, a.begin_k = {0, 70, 103};
  a.q = call.tensors.at("q").values;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t j = 0; j < static_cast<int64_t>(lengths[b]); ++j) {
      const auto page = static_cast<int64_t>(table[b * kTable + j / kPage]);
      const int64_t at = (page * kPage + j % kPage) * kKeyRow;
      for (const auto& [name, to] : {std::pair("k_cache", &a.k), std::pair("v_cache", &a.v)}) {
        const auto from = call.tensors.at(name).values.begin() + at;
        to->insert(to->end(), from, from + kKeyRow);
      }
    }
  }
  a.score_mod = [&](double x, int64_t b, int64_t h, int64_t i, int64_t j) {
    const Values& bias = call.tensors.at("capture_0").values;
    return x + bias[h] * static_cast<double>(j % 4) + static_cast<double>(i + b);
  };
  a.mask_mod = [](int64_t, int64_t, int64_t i, int64_t j) { return (i + j) % 3 != 1; };
  for (const char* splits : {"1", "2"}) {
    call.options["num_splits"] = splits;
    check_against(run(call), a);
  }
}

FAMILY_CASE("portable", "rows that a mask empties, and scores of minus infinity") {
  const Sizes s{1, 70, 130, 1, 1, 64};
  Call call = dense(s);
  call.texts["mask_mod"] =
      "__device__ bool mask_mod(int b, int h, int q, int k) { return q >= 64 && k < 64; }\n";
  ref::Attention a = plain(call, s);
  a.mask_mod = [](int64_t, int64_t, int64_t i, int64_t j) { return i >= 64 && j < 64; };
  check_against(run(call), a);

  call.texts["mask_mod"] = "__device__ bool mask_mod(int, int, int, int) { return false; }\n";
  a.mask_mod = [](int64_t, int64_t, int64_t, int64_t) { return false; };
  const Answer none = run(call);
  check_against(none, a);
  CHECK(none.total("tensor_ops") == 0);

  call.texts = {{"score_mod",
                 "__device__ float score_mod(float x, int b, int h, int q, int k) {\n"
                 "  return q % 2 == 0 || k % 3 == 0 ? minus_infinity() : x * x;\n}\n"}};
  a.mask_mod = [](int64_t, int64_t, int64_t i, int64_t j) { return i % 2 != 0 && j % 3 != 0; };
  a.score_mod = [](double x, int64_t, int64_t, int64_t, int64_t) { return x * x; };
  check_against(run(call), a);
}

FAMILY_CASE("portable",
            "a plan says what a mod lacks, with the file's lines, and takes no gradient without") {
  const auto refused = [](Call call, const std::string& expected) {
    const Problem problem = declare(call);
    lathe_plan* made = nullptr;
    CHECK(lathe_plan_create(&made, shared_context(), problem.get()) == LATHE_INVALID_ARGUMENT);
    const std::string error = lathe_last_error();
    INFO(error);
    CHECK(error.find(expected) != std::string::npos);
    lathe_plan_destroy(made);
  };
  Call call = dense({});
  call.texts["score_mod"] =
      "// one\n__device__ float score_mod(float x, int, int, int, int) {\n"
      "  return x + y;\n}\n";
  refused(call, "<score_mod>(3): error: identifier \"y\" is undefined");
  call.texts["score_mod"] = "__device__ float score_mod(float x) { return x; }\n";
  refused(call,
          "option score_mod: <score_mod> must define __device__ float score_mod(float score,");
  call.texts["score_mod"] =
      "__device__ float score_mod(float x, int, int, int, int) { return x + threadIdx.x; }\n";
  refused(call, "depends on the thread");
  call.texts["score_mod"] =
      "__device__ float score_mod(float x, int, int, int, int) { return x; }\n";
  refused(with_gradients(call, {}), "option score_mod is <score_mod>, which has no gradient");
  call = dense({});
  call.put("capture_0", LATHE_F32, {1}, {0});
  refused(call, "capture_0 is declared, but nothing reads it");
}
