// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file makes small calls of flash_attention for tests over ranks.
#pragma once

#include "tests/harness/check.h"
#include "tests/harness/ranks.h"

namespace apitest {

// A CallShape holds the sizes of a call: one sequence, a batch of them, or packed ones.
struct CallShape {
  int64_t heads = 4, kv_heads = 4, batch = 1, queries = 40, keys = 40;
  std::vector<int64_t> cu_q, cu_k;  // packed; batch is not used then
  int64_t width = 16, value_width = 24;
  lathe_dtype dtype = LATHE_BF16;
  bool sinks = false, backward = true, dlse = false;
};

inline Call make_call(const CallShape& s) {
  Call call;
  const bool packed = !s.cu_q.empty();
  const auto shape = [&](int64_t tokens, int64_t heads, int64_t width) {
    std::vector<int64_t> out = {tokens, heads, width};
    if (!packed) out.insert(out.begin(), s.batch);
    return out;
  };
  std::vector<int64_t> rows = {s.heads, s.queries};
  if (!packed) rows.insert(rows.begin(), s.batch);
  call.draw("q", s.dtype, shape(s.queries, s.heads, s.width), 1);
  call.draw("k", s.dtype, shape(s.keys, s.kv_heads, s.width), 2);
  call.draw("v", s.dtype, shape(s.keys, s.kv_heads, s.value_width), 3);
  if (packed) {
    const auto offsets = static_cast<int64_t>(s.cu_q.size());
    call.put("cu_seqlens_q", LATHE_I32, {offsets}, Values(s.cu_q.begin(), s.cu_q.end()));
    const auto& cu_k = s.cu_k.empty() ? s.cu_q : s.cu_k;
    call.put("cu_seqlens_k", LATHE_I32, {offsets}, Values(cu_k.begin(), cu_k.end()));
  }
  if (s.sinks) call.draw("sinks", LATHE_F32, {s.heads}, 4);
  call.want("out", s.dtype, shape(s.queries, s.heads, s.value_width));
  call.want("lse", LATHE_F32, rows);
  if (!s.backward) return call;
  call.draw("dout", s.dtype, shape(s.queries, s.heads, s.value_width), 5);
  if (s.dlse) call.draw("dlse", LATHE_F32, rows, 6);
  call.want("dq", s.dtype, shape(s.queries, s.heads, s.width));
  call.want("dk", s.dtype, shape(s.keys, s.kv_heads, s.width));
  call.want("dv", s.dtype, shape(s.keys, s.kv_heads, s.value_width));
  if (s.sinks) call.want("dsinks", LATHE_F32, {s.heads});
  call.options["deterministic"] = "1";
  return call;
}

}  // namespace apitest
