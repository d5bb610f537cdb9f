// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward and kda_backward_finish on the simulator, fed with what the walks should leave, from
// the recurrence in double: the gradients' own errors, without the walks'.
#pragma once

#include <map>
#include <optional>

#include "tests/ref/kda_backward.h"
#include "tests/templates/kda_case.h"

namespace kda_case {

// Two parts of columns, or four.
inline int gradient_threads(const Setup& s) { return s.has("wide_block") ? 512 : 256; }
// As KdaBackwardSmem lays it out: tiles, scores, sums of columns and of rows, what waits.
inline int gradient_bytes(const Setup& s) {
  const bool split = s.element == LATHE_F32;
  const int threads = gradient_threads(s), parts = threads / 128, columns = 16 * parts;
  const int planes = split ? 3 : 1, values = split ? 32 : 64, heads = s.has("grouped") ? 9 : 1;
  const int tiles = planes * (3 * 64 * values * 2 + 2 * values * columns * 2);
  const int sums = 35 * 4 * columns + 64 + 1024 + parts * 512 + heads * (1 + parts) * 256;
  const bool stashed = s.has("l2norm") && !split && s.width <= 128 && !s.has("grouped");
  const int waiting = stashed ? (s.width / columns - 1) * 64 * threads : 0;
  return (tiles + planes * 20 * 512 + sums + waiting + 127) / 128 * 128;
}

inline KernelSpec gradient_spec(const Setup& s) {
  KernelSpec spec;
  spec.kernel = "kda_backward";
  spec.source = "kda/kda_backward.cuh";
  spec.params = "KdaBackwardParams";
  spec.params_bytes = sizeof(lathe::KdaBackwardParams);
  spec.last_field = "reserved";
  spec.last_field_offset = offsetof(lathe::KdaBackwardParams, reserved);
  spec.smem = "KdaBackwardSmem";
  spec.smem_bytes = gradient_bytes(s);
  spec.threads = gradient_threads(s);
  spec.constants = constants_of(s);
  spec.constants.push_back(Constant::flag("grouped", "kGrouped", s.has("grouped")));
  return spec;
}

inline KernelSpec finish_spec() {
  KernelSpec spec;
  spec.kernel = "kda_backward_finish";
  spec.source = "kda/kda_backward_finish.cuh";
  spec.params = "KdaBackwardFinishParams";
  spec.params_bytes = sizeof(lathe::KdaBackwardFinishParams);
  spec.last_field = "reserved";
  spec.last_field_offset = offsetof(lathe::KdaBackwardFinishParams, reserved);
  spec.smem = "KdaBackwardFinishSmem";
  spec.threads = 256, spec.smem_bytes = 4 * 256;
  return spec;
}

// Nothing without a compiler.
inline std::optional<lathe::CompiledUnit> compiled(const KernelSpec& spec,
                                                   const std::string& arch = "sm_80") {
  static const auto opened = lathe::Compiler::open();
  static std::map<std::string, lathe::CompiledUnit> all;
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return std::nullopt;
  }
  const std::string unit = lathe::emit_unit(spec, arch);
  const auto found = all.find(unit);
  if (found != all.end()) return found->second;
  const auto made = (*opened)->compile(unit, arch);
  INFO(spec.text());
  REQUIRE_MESSAGE(made.ok(), made.status().text());
  return all.emplace(unit, *made).first->second;
}

// What the walks leave: rows vn and y, [rows, HV, V], and states, [slots, HV, V, K].
struct Left {
  int slots = 0;
  ref::Array values, value_grads, states, state_grads;
};

// `behind`: rows of a packed batch that no sequence has.
inline Left left_of(const ref::Kda& a, bool packed, int64_t behind = 0) {
  Left left;
  const int64_t each = packed ? 0 : (a.begin[1] + 63) / 64;
  left.slots =
      static_cast<int>(packed ? (a.rows() + behind) / 64 + a.sequences() : a.sequences() * each);
  const int64_t k = a.key_dim, v = a.value_dim, hv = a.value_heads;
  left.values.assign(a.v.size(), 0.0), left.value_grads.assign(a.v.size(), 0.0);
  const double nothing = std::nan("");  // an idle slot's
  left.states.assign(static_cast<size_t>(left.slots * hv * k * v), nothing);
  left.state_grads = left.states;
  for (int64_t n = 0; n < a.sequences(); ++n) {
    const int64_t first_slot = packed ? a.begin[n] / 64 + n : n * each;
    for (int64_t head = 0; head < hv; ++head) {
      const auto keep = [&](ref::Array* to, int64_t token, const ref::Array& state) {
        for (int64_t i = 0; i < k * v; ++i) {
          (*to)[((first_slot + token / 64) * hv + head) * k * v + i % v * k + i / v] = state[i];
        }
      };
      const int64_t count = a.begin[n + 1] - a.begin[n];
      ref::Array state = kda_load(a, a.initial_state, n, head);
      for (int64_t t = 0; t < count; ++t) {
        if (t % 64 == 0) keep(&left.states, t, state);
        const ref::KdaToken token = kda_token(a, a.begin[n] + t, head);
        const ref::Array u = kda_decay(a, token, state.data());
        for (int64_t i = 0; i < k * v; ++i) state[i] += token.k[i / v] * u[i % v];
        std::copy(
            u.begin(), u.end(),
            left.values.begin() + static_cast<std::ptrdiff_t>(a.value_at(a.begin[n] + t, head)));
      }
      ref::Array ds = kda_load(a, a.dht, n, head);
      for (int64_t t = count; t-- > 0;) {
        if (t % 64 == 63 || t + 1 == count) keep(&left.state_grads, t, ds);
        const int64_t row = a.begin[n] + t;
        const ref::KdaToken token = kda_token(a, row, head);
        double* du = &left.value_grads[a.value_at(row, head)];
        for (int64_t i = 0; i < k * v; ++i) {
          ds[i] += a.scale * token.q[i / v] * a.d_o[a.value_at(row, head, i % v)];
          du[i % v] += ds[i] * token.k[i / v];
        }
        for (int64_t i = 0; i < k * v; ++i) {
          ds[i] = std::exp(token.g[i / v]) * (ds[i] - token.k[i / v] * token.beta * du[i % v]);
        }
      }
    }
  }
  return left;
}

// The gradient of the output and of the final state, rounded.
inline void add_gradients(const Setup& s, uint32_t seed, ref::Kda* a) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  a->d_o.resize(a->v.size());
  for (double& x : a->d_o) x = numbers::rounded(s.element, normal(random));
  if (s.has("final")) {
    a->dht.resize(static_cast<size_t>(a->sequences() * a->value_heads) * a->state_size());
    for (double& x : a->dht) x = static_cast<float>(normal(random));
  }
}

struct Gradients {
  ref::Array dq, dk, dv, dg, dbeta, dA_log, ddt_bias;
  sim::Counters counters;  // of kda_backward
};

// How the two are launched. `without` names gradients that are not wanted.
struct Launch {
  uint64_t seed = 1;
  int policy = 1;
  std::string without;
  int64_t behind = 0;  // rows that no sequence has, NaN
};

// Any finding fails the test.
template <class Params>
sim::Outcome launched(sim::test::Device& device, const std::string& ptx, const KernelSpec& spec,
                      size_t blocks, const Params& params) {
  device.load(ptx);
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const sim::Outcome outcome = device.run("entry", static_cast<uint32_t>(blocks),
                                          static_cast<uint32_t>(spec.threads), params);
  INFO(spec.text(), " ", sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  CHECK(outcome.counters.shared_store.conflicts == 0);
  return outcome;
}

// As the kernels leave them; what is not wanted is empty. Any finding fails the test.
Gradients run_gradients(const Setup& s, const ref::Kda& a, const Left& left, const Launch& launch);

// The largest relative rms error, and whether all are within it.
double bound_of(const Setup& s, const std::string& name);
void compare(const Setup& s, const Gradients& got, const ref::KdaBackward& exact);

}  // namespace kda_case
