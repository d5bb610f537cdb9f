// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/kda_gradients.h"

namespace kda_case {
namespace {

// With `rows` more rows of NaN.
ref::Array longer(const ref::Array& x, int64_t rows, int64_t each) {
  ref::Array all = x;
  all.insert(all.end(), static_cast<size_t>(rows * each), std::nan(""));
  return all;
}

// Parameters and where results go.
struct Prepared {
  lathe::KdaBackwardParams p = {};
  size_t key_rows = 0, value_rows = 0, gates = 0, betas = 0;  // elements
};

Prepared prepare(sim::test::Device& device, const Setup& s, ref::Kda a, const Left& left,
                 const Launch& launch) {
  Prepared out;
  lathe::KdaBackwardParams& p = out.p;
  const int64_t keys = a.heads * a.key_dim, values = a.value_heads * a.value_dim;
  const int64_t gates = a.value_heads * a.key_dim, more = launch.behind;
  a.q = longer(a.q, more, keys), a.k = longer(a.k, more, keys);
  a.v = longer(a.v, more, values), a.d_o = longer(a.d_o, more, values);
  a.g = longer(a.g, more, gates), a.beta = longer(a.beta, more, a.value_heads);
  p.in = inputs_of(device, s, a);
  p.in.tokens += static_cast<int>(more);
  p.d_o = put(device, s.element, a.d_o);
  p.saved_values = put(device, s.element, longer(left.values, more, values));
  p.value_grads = put(device, s.element, longer(left.value_grads, more, values));
  p.saved_states = put(device, s.element, left.states);
  p.state_grads = put(device, s.element, left.state_grads);
  out.key_rows = a.q.size(), out.value_rows = a.v.size();
  out.gates = a.g.size(), out.betas = a.beta.size();
  const auto room = [&](const char* name, size_t count, lathe_dtype dtype) -> void* {
    if ((" " + launch.without + " ").find(lathe::text(" ", name, " ")) != std::string::npos) {
      return nullptr;
    }
    return at(device.buffer(count * numbers::bytes_of(dtype) + 64));
  };
  p.dq = room("dq", out.key_rows, s.element), p.dk = room("dk", out.key_rows, s.element);
  p.dv = room("dv", out.value_rows, s.element);
  p.dg = room("dg", out.gates, s.gate), p.dbeta = room("dbeta", out.betas, s.beta);
  const size_t sums = static_cast<size_t>(left.slots) * static_cast<size_t>(a.value_heads);
  if (s.has("factor")) p.rate_sums = room("dA_log", sums, LATHE_F32);
  if (s.has("bias")) {
    p.bias_sums = room("ddt_bias", sums * static_cast<size_t>(a.key_dim), LATHE_F32);
  }
  const lathe::KdaInputs& in = p.in;
  p.do_head_stride = p.dv_head_stride = in.v_head_stride;
  p.do_token_stride = p.dv_token_stride = in.v_token_stride;
  p.do_batch_stride = p.dv_batch_stride = in.v_batch_stride;
  p.dq_head_stride = p.dk_head_stride = in.q_head_stride;
  p.dq_token_stride = p.dk_token_stride = in.q_token_stride;
  p.dq_batch_stride = p.dk_batch_stride = in.q_batch_stride;
  p.dg_head_stride = in.g_head_stride, p.dg_token_stride = in.g_token_stride;
  p.dg_batch_stride = in.g_batch_stride;
  p.dbeta_head_stride = in.beta_head_stride, p.dbeta_token_stride = in.beta_token_stride;
  p.dbeta_batch_stride = in.beta_batch_stride;
  p.slots = left.slots;
  return out;
}

}  // namespace

Gradients run_gradients(const Setup& s, const ref::Kda& a, const Left& left, const Launch& launch) {
  Gradients out;
  const auto gradients = compiled(gradient_spec(s)), finish = compiled(finish_spec());
  if (!gradients || !finish) return out;
  sim::test::Device device("sm_80");
  device.settings.seed = launch.seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(launch.policy);
  const Prepared made = prepare(device, s, a, left, launch);
  const lathe::KdaBackwardParams& p = made.p;
  out.counters = launched(device, gradients->ptx, gradient_spec(s),
                          static_cast<size_t>(left.slots * p.in.heads), p)
                     .counters;
  const auto result = [&](const void* from, lathe_dtype dtype, size_t count) {
    return from == nullptr ? ref::Array() : take(device, dtype, from, count);
  };
  out.dq = result(p.dq, s.element, made.key_rows), out.dk = result(p.dk, s.element, made.key_rows);
  out.dv = result(p.dv, s.element, made.value_rows);
  out.dg = result(p.dg, s.gate, made.gates), out.dbeta = result(p.dbeta, s.beta, made.betas);
  if (p.rate_sums == nullptr && p.bias_sums == nullptr) return out;

  lathe::KdaBackwardFinishParams f = {};
  f.rate_sums = p.rate_sums, f.bias_sums = p.bias_sums;
  f.slots = p.slots, f.value_heads = p.in.value_heads, f.key_dim = p.in.key_dim;
  const size_t rates = p.rate_sums == nullptr ? 0 : static_cast<size_t>(a.value_heads);
  const size_t biases = p.bias_sums == nullptr ? 0 : static_cast<size_t>(a.value_heads * a.key_dim);
  if (rates > 0) f.dA_log = at(device.buffer(4 * rates + 64));
  if (biases > 0) f.ddt_bias = at(device.buffer(4 * biases + 64));
  launched(device, finish->ptx, finish_spec(), (rates + 31) / 32 + (biases + 31) / 32, f);
  out.dA_log = result(f.dA_log, LATHE_F32, rates);
  out.ddt_bias = result(f.ddt_bias, LATHE_F32, biases);
  return out;
}

double bound_of(const Setup& s, const std::string& name) {
  if (s.element == LATHE_F32) return 1e-5;
  return name == "dg" || name == "dbeta" ? 1.5e-2 : 8e-3;
}

void compare(const Setup& s, const Gradients& got, const ref::KdaBackward& exact) {
  const auto near = [&](const char* name, const ref::Array& mine, const ref::Array& r) {
    if (mine.empty()) return;
    INFO(std::string(name));
    CHECK(rms(mine, r) < bound_of(s, name));
  };
  near("dq", got.dq, exact.dq), near("dk", got.dk, exact.dk), near("dv", got.dv, exact.dv);
  near("dg", got.dg, exact.dg), near("dbeta", got.dbeta, exact.dbeta);
  near("dA_log", got.dA_log, exact.dA_log), near("ddt_bias", got.ddt_bias, exact.ddt_bias);
}

}  // namespace kda_case
