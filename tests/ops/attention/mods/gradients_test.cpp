// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover gradients through score_mod and mask_mod: what options say as well equals them
// bit for bit, everything else equals plain loops in double.
#include "tests/ops/attention/mods/mods_case.h"

using namespace apitest;

FAMILY_CASE("portable",
            "gradients: a window and a soft cap as mods are the options', bit for bit") {
  const Sizes s{1, 200, 200, 2, 1, 64};
  check_window(with_gradients(dense(s), s), 0);
}

FAMILY_CASE("portable", "gradients of any mask and any score_mod: against plain loops") {
  const Sizes s{2, 70, 150, 4, 2, 64};
  Call call = with_gradients(dense(s), s);
  call.options["softcap"] = "3";
  call.options["window_right"] = "90";
  const Values factor = {0.5, 1, -0.5, 0.25};
  call.put("capture_3", LATHE_F16, {4}, factor);
  call.texts["score_mod"] =
      "__device__ float score_mod(float score, int batch, int head, int q_idx, int kv_idx,\n"
      "                           const Captures& captures) {\n"
      "  return score + captures.get<3>(head) * score * score + 0.1f * batch;\n}\n"
      "__device__ float score_mod_bwd(float dscore, float score, int batch, int head, int q_idx,\n"
      "                               int kv_idx, const Captures& captures) {\n"
      "  return dscore * (1 + 2 * captures.get<3>(head) * score);\n}\n";
  call.texts["mask_mod"] =
      "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
      "  return (q_idx / 8 + kv_idx / 8 + head) % 3 != 0 && q_idx != 5 && kv_idx < 64 + 64 * batch;"
      "\n}\n";
  ref::Attention a = plain(call, s);
  a.softcap = 3, a.window_right = 90;
  a.score_mod = [&](double x, int64_t b, int64_t h, int64_t, int64_t) {
    return x + factor[h] * x * x + 0.1 * static_cast<double>(b);
  };
  a.score_slope = [&](double x, int64_t, int64_t h, int64_t, int64_t) {
    return 1 + 2 * factor[h] * x;
  };
  a.mask_mod = [](int64_t b, int64_t h, int64_t i, int64_t j) {
    return (i / 8 + j / 8 + h) % 3 != 0 && i != 5 && j < 64 + 64 * b;
  };
  check_gradients(run(call), call, a);
  call.options["deterministic"] = "0";
  check_gradients(run(call), call, a);
}

FAMILY_CASE("portable",
            "packed sequences, some empty, with a mask and gradients: against plain loops") {
  constexpr int64_t kHeads = 4, kKeyHeads = 2, kWidth = 64, kRows = 230, kKeys = 300;
  Call call;
  call.draw("q", LATHE_F16, {kRows, kHeads, kWidth}, 1);
  call.draw("k", LATHE_F16, {kKeys, kKeyHeads, kWidth}, 2);
  call.draw("v", LATHE_F16, {kKeys, kKeyHeads, kWidth}, 3);
  call.draw("dout", LATHE_F16, {kRows, kHeads, kWidth}, 4);
  ref::Attention a;
  a.heads = kHeads, a.kv_heads = kKeyHeads, a.head_dim = a.value_dim = kWidth;
  a.begin_q = {0, 70, 70, 100, 101, 230}, a.begin_k = {0, 130, 140, 140, 204, 300};
  call.put("cu_seqlens_q", LATHE_I64, {6}, Values(a.begin_q.begin(), a.begin_q.end()));
  call.put("cu_seqlens_k", LATHE_I64, {6}, Values(a.begin_k.begin(), a.begin_k.end()));
  call.want("out", LATHE_F16, {kRows, kHeads, kWidth});
  call.want("lse", LATHE_F32, {kHeads, kRows});
  call.want("dq", LATHE_F16, {kRows, kHeads, kWidth});
  call.want("dk", LATHE_F16, {kKeys, kKeyHeads, kWidth});
  call.want("dv", LATHE_F16, {kKeys, kKeyHeads, kWidth});
  call.options["window_left"] = "100";
  call.texts["mask_mod"] =
      "__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {\n"
      "  return (q_idx / 16 + kv_idx / 32 + head + batch) % 3 != 0;\n}\n";
  a.scale = 1 / std::sqrt(static_cast<double>(kWidth)), a.window_left = 100;
  a.q = call.tensors.at("q").values, a.k = call.tensors.at("k").values;
  a.v = call.tensors.at("v").values;
  a.mask_mod = [](int64_t b, int64_t h, int64_t i, int64_t j) {
    return (i / 16 + j / 32 + h + b) % 3 != 0;
  };
  check_gradients(run(call), call, a);
}
