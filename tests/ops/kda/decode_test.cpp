// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover kda_decode through lathe.h on the simulator, under every check: options,
// generated, against the layer in double, and what must hold bit for bit.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/kda/decode_case.h"

namespace {

using namespace apitest;
using ref::Array;

Outputs check_case(const KdaDecodeCase& c, const ref::KdaDecode& inputs) {
  INFO(c.text());
  const Outputs actual = run_kda_decode(c, inputs);
  check_kda_decode(c, inputs, actual);
  return actual;
}

Outputs outputs_of(const Call& call) {
  const Answer answer = execute(shared_context(), call);
  check_findings(answer);
  return answer.outputs;
}

// Few kernels, many calls: what a number of the table turns on is spread by its digits.
KdaDecodeCase generated(int kernel) {
  constexpr lathe_dtype kTypes[] = {LATHE_BF16, LATHE_F16, LATHE_F32};
  constexpr int64_t kWidths[] = {32, 128, 60, 8, 100, 256, 16};
  KdaDecodeCase c;
  c.element = kTypes[kernel % 3];
  c.gate_dtype = kTypes[(kernel / 2 + 2) % 3], c.beta_dtype = kTypes[kernel / 3 % 3];
  c.weight_dtype = kTypes[(kernel + 1) % 3], c.output_gate_dtype = kTypes[kernel / 2 % 3];
  c.norm_dtype = kernel % 2 != 0 ? c.element : LATHE_F32;
  c.pool_dtype = kTypes[(kernel / 2 + 2) % 3];
  c.index_dtype = kernel % 2 != 0 ? LATHE_I64 : LATHE_I32;
  c.key_dim = kWidths[kernel % 7], c.value_dim = kWidths[(3 * kernel + 1) % 7];
  c.gate = kernel % 4, c.dt_bias = c.gate > 0 && kernel % 3 != 0;
  c.sigmoid = kernel / 2 % 2 != 0, c.negative = c.sigmoid && kernel % 3 == 0;
  c.l2norm = kernel % 5 != 4, c.v_first = kernel / 3 % 2 != 0;
  c.width = 2 + kernel % 5, c.columns = c.width - 1 + kernel % 3 * 2;
  c.bias = kernel % 3 == 1, c.silu = kernel % 4 != 3;
  c.norm = kernel % 4 != 1, c.output_gate = kernel % 4 != 2, c.gate_silu = kernel / 2 % 2 != 0;
  c.ring_length = kernel % 3 == 2 ? 5 : 0;
  if (c.ring_length > 0) c.ring_dtype = kernel % 2 != 0 ? c.element : LATHE_F32;
  c.gap = kernel % 4 == 2 ? 8 : 0;
  c.tokens = kernel % 2 != 0 ? 2 : 0;
  return c;
}

TEST_CASE("kda_decode: all options, generated, against the layer in double") {
  uint64_t seed = 1;
  for (int kernel = 0; kernel < 18; ++kernel) {
    for (int call = 0; call < 3; ++call, ++seed) {
      KdaDecodeCase c = generated(kernel);
      c.heads = 1 + (kernel + call) % 3, c.group = 1 + call % 3, c.batch = 1 + 2 * call;
      if (c.tokens > 0) c.tokens = 1 + 2 * call;
      c.sources = c.ring_length == 0 && call == 1;
      c.updates = c.ring_length > 0 || call != 2;
      c.append = c.ring_length == 0 || call != 1;
      c.null_slot = call == 2 ? 4 : -1;
      check_case(c, make_kda_decode_inputs(c, seed));
    }
  }
}

// Returns the tokens [from, to) of inputs, with the pools and records that a call has left.
ref::KdaDecode later_tokens(const ref::KdaDecode& whole, int64_t from, int64_t to,
                            const Outputs& left) {
  ref::KdaDecode out = whole;
  const int64_t batch = whole.kda.sequences();
  const auto cut = [&](const Array& all) {
    const auto row = std::ssize(all) / whole.kda.rows();
    Array rows;
    for (int64_t b = 0; b < batch; ++b) {
      const auto at = all.begin() + (b * whole.tokens) * row;
      rows.insert(rows.end(), at + from * row, at + to * row);
    }
    return rows;
  };
  out.tokens = to - from;
  for (int64_t b = 0; b <= batch; ++b) out.kda.begin[static_cast<size_t>(b)] = b * out.tokens;
  out.qkv = cut(whole.qkv), out.kda.g = cut(whole.kda.g), out.kda.beta = cut(whole.kda.beta);
  out.output_gate = cut(whole.output_gate);
  if (left.empty()) return out;
  out.inputs = left.at("conv_pool"), out.pool.states = left.at("state_pool");
  if (whole.ring_length == 0) return out;
  out.ring_k = left.at("ring_k"), out.ring_u = left.at("ring_u"), out.ring_g = left.at("ring_g");
  const Array& counts = left.at("ring_count");
  out.ring_count.assign(counts.begin(), counts.end());
  return out;
}

TEST_CASE("kda_decode: tokens one by one, or with records, are tokens at once, bit for bit") {
  for (const int64_t columns : {3, 4, 9}) {
    KdaDecodeCase c;
    c.batch = 2, c.tokens = 8, c.group = 2, c.value_dim = 60, c.gate = 1, c.columns = columns;
    const ref::KdaDecode whole = make_kda_decode_inputs(c);
    const Outputs once = check_case(c, whole);
    for (const int64_t length : {0, 3}) {
      CAPTURE(length);
      ref::KdaDecode inputs = whole;
      KdaDecodeCase one = c;
      one.ring_length = length;
      if (length > 0) {
        ref::KdaDecode rings = make_kda_decode_inputs(one);
        inputs.ring_length = length, inputs.ring_k = rings.ring_k, inputs.ring_u = rings.ring_u;
        inputs.ring_g = rings.ring_g;
        inputs.ring_count.assign(static_cast<size_t>(whole.pool.slots), 0);
      }
      Outputs left;
      // Of one token, with and without the dim, and of as many as there is room for.
      int64_t from = 0;
      for (const int64_t tokens : {0, 0, 1, 3, 2}) {
        one.tokens = tokens;
        const int64_t to = from + one.each();
        left = run_kda_decode(one, later_tokens(inputs, from, to, left));
        for (int64_t b = 0; b < c.batch; ++b) {
          const auto row = std::ssize(once.at("o")) / (c.batch * 8);
          const Array& o = left.at("o");
          const auto expected = once.at("o").begin() + (b * 8 + from) * row;
          CHECK(Array(o.begin() + b * one.each() * row, o.begin() + (b + 1) * one.each() * row) ==
                Array(expected, expected + one.each() * row));
        }
        from = to;
      }
      CHECK(left.at("conv_pool") == once.at("conv_pool"));
      if (length == 0) CHECK(left.at("state_pool") == once.at("state_pool"));
    }
  }
}

TEST_CASE("kda_decode: in float32 it is causal_conv1d_update, then kda_recurrent, bit for bit") {
  KdaDecodeCase c;
  c.batch = 2, c.columns = 4, c.group = 2, c.key_dim = 128, c.value_dim = 60, c.bias = true;
  c.norm = c.output_gate = false, c.gate = 3, c.dt_bias = true;
  ref::KdaDecode a = make_kda_decode_inputs(c);
  const Outputs fused = check_case(c, a);
  const int64_t D = a.channels(), H = c.heads, HV = c.value_heads(), K = c.key_dim;
  Call conv;
  conv.op = "causal_conv1d_update";
  conv.put("x", LATHE_F32, {c.batch, D}, a.qkv);
  conv.put("weight", LATHE_F32, {D, c.width}, a.weight);
  conv.put("bias", LATHE_F32, {D}, a.bias);
  Array states;
  for (const int64_t slot : a.pool.indices) {
    states.insert(states.end(), a.inputs.begin() + slot * D * 4,
                  a.inputs.begin() + (slot + 1) * D * 4);
  }
  conv.put("state", LATHE_F32, {c.batch, D, 4}, states);
  conv.tensors.at("state").changed = true;
  conv.want("y", LATHE_F32, {c.batch, D});
  conv.options["activation"] = "silu";
  const Array y = outputs_of(conv).at("y");
  Array rows[3];
  for (int64_t b = 0; b < c.batch; ++b) {
    const auto at = y.begin() + b * D;
    rows[0].insert(rows[0].end(), at, at + H * K);
    rows[1].insert(rows[1].end(), at + H * K, at + 2 * H * K);
    rows[2].insert(rows[2].end(), at + 2 * H * K, at + D);
  }
  Call recurrent = kda_decode_call(c, a);
  recurrent.op = "kda_recurrent";
  for (const char* name : {"qkv", "conv_weight", "conv_bias", "conv_pool"}) {
    recurrent.tensors.erase(name);
  }
  recurrent.put("q", LATHE_F32, {c.batch, 1, H, K}, rows[0]);
  recurrent.put("k", LATHE_F32, {c.batch, 1, H, K}, rows[1]);
  recurrent.put("v", LATHE_F32, {c.batch, 1, HV, c.value_dim}, rows[2]);
  for (const auto& [name, shape] :
       {std::pair<const char*, std::vector<int64_t>>("g", {c.batch, 1, HV, K}),
        {"beta", {c.batch, 1, HV}},
        {"o", {c.batch, 1, HV, c.value_dim}}}) {
    recurrent.tensors.at(name).shape = shape;
  }
  const Outputs apart = outputs_of(recurrent);
  CHECK(fused.at("o") == apart.at("o"));
  CHECK(fused.at("state_pool") == apart.at("state_pool"));
}

TEST_CASE("kda_decode: more rows and heads than blocks run at once, and slots out of range") {
  KdaDecodeCase c;
  c.element = c.weight_dtype = LATHE_BF16, c.batch = 40, c.heads = 3, c.group = 2;
  c.index_dtype = LATHE_I64;
  ref::KdaDecode a = make_kda_decode_inputs(c);
  a.pool.indices[3] = a.pool.slots, a.pool.indices[5] = int64_t{1} << 40;
  a.pool.indices[7] = -(int64_t{1} << 40);
  check_case(c, a);
  c.ring_length = 4, c.append = false;
  check_case(c, make_kda_decode_inputs(c, 2));
}

TEST_CASE("kda_decode: more records than are staged at once, of heads that are walked in turns") {
  uint64_t seed = 1;
  for (const auto& [keys, values] : {std::pair<int64_t, int64_t>(32, 32), {128, 136}, {256, 60}}) {
    for (const bool append : {true, false}) {
      KdaDecodeCase c;
      c.element = c.weight_dtype = LATHE_BF16, c.ring_dtype = append ? LATHE_BF16 : LATHE_F32;
      c.key_dim = keys, c.value_dim = values, c.heads = 1, c.group = 2, c.batch = 13;
      c.tokens = append ? 3 : 0, c.ring_length = 37, c.append = append;
      check_case(c, make_kda_decode_inputs(c, seed++));
    }
  }
}

TEST_CASE("kda_decode: without tokens states go from their sources to their slots") {
  KdaDecodeCase c;
  c.batch = 5, c.sources = true, c.tokens = 1;
  const ref::KdaDecode whole = make_kda_decode_inputs(c);
  const ref::KdaDecode none = later_tokens(whole, 0, 0, {});
  ref::KdaDecode after = none;
  ref::kda_decode(&after);
  Call call = kda_decode_call(c, whole);
  for (const char* name : {"qkv", "g", "beta", "output_gate", "o"}) {
    call.tensors.at(name).shape[1] = 0, call.tensors.at(name).values = {};
  }
  const Outputs out = outputs_of(call);
  CHECK(out.at("state_pool") == after.pool.states);
  CHECK(out.at("conv_pool") == after.inputs);
}

// A NaN of one sequence stays in it, and one of a value head in its head.
TEST_CASE("kda_decode: what is another's changes nothing, even NaN") {
  KdaDecodeCase c;
  c.batch = 2, c.group = 2;
  const ref::KdaDecode a = make_kda_decode_inputs(c);
  const Outputs clean = check_case(c, a);
  ref::KdaDecode spoilt = a;
  std::fill(spoilt.qkv.begin() + a.channels(), spoilt.qkv.end(), NAN);
  spoilt.kda.g[0] = NAN;  // of value head 0 of sequence 0
  const Outputs out = outputs_of(kda_decode_call(c, spoilt));
  for (const char* name : {"o", "state_pool"}) {
    const auto sequence = name[0] == 'o' ? 0 : a.pool.indices[0];
    const auto slots = name[0] == 'o' ? c.batch : a.pool.slots;
    const auto each = std::ssize(out.at(name)) / slots, head = each / c.value_heads();
    const auto at = sequence * each;
    CHECK(std::isnan(out.at(name)[static_cast<size_t>(at)]));
    CHECK(std::equal(out.at(name).begin() + at + head, out.at(name).begin() + at + each,
                     clean.at(name).begin() + at + head));
  }
}

}  // namespace
