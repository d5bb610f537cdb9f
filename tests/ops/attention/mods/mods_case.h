// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes dense calls of flash_attention with mods, and computes the same by plain loops in
// double.
#pragma once

#include "reference/attention.h"
#include "tests/harness/check.h"

namespace apitest {

constexpr double kTolerance = 0.01;  // of f16 results near 1; a wrong key or block is far off

struct Sizes {
  int64_t batch = 1, seq_q = 200, seq_k = 200, heads = 2, kv_heads = 2, width = 64;
};

inline Call dense(const Sizes& s) {
  Call call;
  call.draw("q", LATHE_F16, {s.batch, s.seq_q, s.heads, s.width}, 1);
  call.draw("k", LATHE_F16, {s.batch, s.seq_k, s.kv_heads, s.width}, 2);
  call.draw("v", LATHE_F16, {s.batch, s.seq_k, s.kv_heads, s.width}, 3);
  call.want("out", LATHE_F16, {s.batch, s.seq_q, s.heads, s.width});
  call.want("lse", LATHE_F32, {s.batch, s.heads, s.seq_q});
  return call;
}

inline ref::Attention plain(const Call& call, const Sizes& s) {
  ref::Attention a;
  a.heads = s.heads, a.kv_heads = s.kv_heads, a.head_dim = a.value_dim = s.width;
  a.packed = false;
  for (int64_t b = 0; b <= s.batch; ++b) {
    a.begin_q.push_back(b * s.seq_q), a.begin_k.push_back(b * s.seq_k);
  }
  a.scale = 1 / std::sqrt(static_cast<double>(s.width));
  a.q = call.tensors.at("q").values, a.k = call.tensors.at("k").values;
  a.v = call.tensors.at("v").values;
  return a;
}

inline void check_against(const Answer& answer, const ref::Attention& a) {
  const ref::AttentionForward expected = ref::attention_forward(a);
  check_near(answer.outputs.at("out"), expected.out, kTolerance);
  check_near(answer.outputs.at("lse"), expected.lse, 1e-4);
}

inline Call with_gradients(Call call, const Sizes& s) {
  call.draw("dout", LATHE_F16, {s.batch, s.seq_q, s.heads, s.width}, 4);
  call.want("dq", LATHE_F16, {s.batch, s.seq_q, s.heads, s.width});
  call.want("dk", LATHE_F16, {s.batch, s.seq_k, s.kv_heads, s.width});
  call.want("dv", LATHE_F16, {s.batch, s.seq_k, s.kv_heads, s.width});
  call.options["deterministic"] = "1";
  return call;
}

inline void check_gradients(const Answer& answer, const Call& call, ref::Attention a) {
  check_against(answer, a);
  a.dout = call.tensors.at("dout").values;
  const ref::AttentionBackward expected = ref::attention_backward(a, ref::attention_forward(a));
  check_near(answer.outputs.at("dq"), expected.dq, 2 * kTolerance);
  check_near(answer.outputs.at("dk"), expected.dk, 2 * kTolerance);
  check_near(answer.outputs.at("dv"), expected.dv, 2 * kTolerance);
}

inline const char* const kWindow = R"(
constexpr int kLeft = 40;
__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {
  return kv_idx <= q_idx && kv_idx >= q_idx - kLeft;
}
)";
inline const char* const kWindowTiles = R"(
__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1) {
  if (k0 > q1 - 1 || k1 - 1 < q0 - kLeft) return 0;
  return k1 - 1 <= q0 && k0 >= q1 - 1 - kLeft ? 2 : 1;
}
)";

// Checks that a window as a mask_mod gives the bits of the option and does as many products, and
// returns the option's answer. `launches` of the mod, if it is not 0. The calls are `call` with one
// or the other.
inline Answer check_window(const Call& call, size_t launches) {
  Call option = call, mod = call;
  option.options["causal"] = "1", option.options["window_left"] = "40";
  const Answer expected = run(option);
  for (const bool tiles : {false, true}) {
    CAPTURE(tiles);
    mod.texts["mask_mod"] = std::string(kWindow) + (tiles ? kWindowTiles : "");
    const Answer found = run(mod);
    check_same(found.outputs, expected.outputs);
    CHECK(found.total("tensor_ops") == expected.total("tensor_ops"));
    if (launches > 0) CHECK(found.launches.size() == launches);
  }
  return expected;
}

}  // namespace apitest
