// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover flash_attention over codes of e4m3: what they stand for, code times scale and
// rounded once, gives what the same attention over tensors of out's dtype gives.
#include "tests/harness/check.h"
#include "tests/numbers.h"
#include "tests/ops/attention/case.h"

using namespace apitest;

namespace {

struct Side {
  const char *name, *scale;
  ref::Array* of;
  int64_t heads, width;
};

// Turns a call of a dtype into one of codes, and its inputs into what these stand for.
void narrow(const AttentionCase& c, bool by_head, ref::Attention* a, Call* call) {
  const Side sides[] = {{"q", "q_scale", &a->q, c.heads(), c.head_dim},
                        {"k", "k_scale", &a->k, c.kv_heads, c.head_dim},
                        {"v", "v_scale", &a->v, c.kv_heads, c.value_dim}};
  for (const Side& side : sides) {
    Values scales, codes;
    // Keys have one scale even where others have one a head.
    const bool each = by_head && side.name != std::string("k");
    for (int64_t h = 0; h < (each ? side.heads : 1); ++h) {
      scales.push_back(numbers::rounded(LATHE_F32, 0.011 + 0.004 * static_cast<double>(h)));
    }
    for (size_t i = 0; i < side.of->size(); ++i) {
      const auto head = static_cast<int64_t>(i) / side.width % side.heads;
      const auto scale = static_cast<float>(scales[each ? static_cast<size_t>(head) : 0]);
      codes.push_back(numbers::rounded(LATHE_F8_E4M3, (*side.of)[i] / scale));
      (*side.of)[i] = numbers::rounded(c.dtype, static_cast<float>(codes.back()) * scale);
    }
    CallTensor& tensor = call->tensors.at(side.name);
    const size_t padding = tensor.values.size() - codes.size();
    codes.insert(codes.end(), padding, NAN);
    tensor.dtype = LATHE_F8_E4M3, tensor.values = codes;
    call->put(side.scale, LATHE_F32, {static_cast<int64_t>(scales.size())}, scales);
  }
  call->options["out_dtype"] = c.dtype == LATHE_F16 ? "f16" : c.dtype == LATHE_F32 ? "f32" : "bf16";
}

void check_narrow(const AttentionCase& c, bool by_head) {
  INFO(c.text());
  ref::Attention a = make_inputs(c);
  Call call = attention_call(c, a, AttentionPart::forward);
  narrow(c, by_head, &a, &call);
  check_attention(c, a, execute(shared_context(), call));
}

}  // namespace

EVERY_FAMILY_CASE("codes of e4m3: dtypes of out, widths, groups, masks") {
  for (const lathe_dtype dtype : {LATHE_BF16, LATHE_F16, LATHE_F32}) {
    AttentionCase c;
    c.dtype = dtype;
    c.queries = {70, 70}, c.keys = {97, 97}, c.kv_heads = 2, c.group = 2;
    c.causal = true;
    check_narrow(c, false);
    c.head_dim = 128, c.value_dim = 48, c.causal = false, c.left = 30, c.right = 3;
    c.sinks = true;
    check_narrow(c, true);
  }
}

EVERY_FAMILY_CASE("codes of e4m3: packed sequences with padding, tensors with gaps") {
  AttentionCase c;
  c.packed = c.causal = true, c.kv_heads = 2, c.group = 3;
  c.queries = {1, 0, 65, 130}, c.keys = {40, 5, 65, 200}, c.padding_q = 3, c.padding_k = 7;
  check_narrow(c, true);
  c.packed = false, c.queries = {65, 65}, c.keys = {80, 80}, c.padding_q = c.padding_k = 0;
  c.placement = {.token_gap = 16, .batch_gap = 32, .offset = 16};
  check_narrow(c, true);
}

TEST_CASE("codes of e4m3: no queries, no keys") {
  for (const auto& [queries, keys] : {std::pair(0, 90), std::pair(70, 0), std::pair(0, 0)}) {
    AttentionCase c;
    c.queries = {queries, queries}, c.keys = {keys, keys};
    check_narrow(c, false);
  }
}
