// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// kda_backward_scan alone: what its two walks leave, against the gradients of the recurrence in
// double, and what must not reach what.
#include <cstring>
#include <limits>

#include "tests/ref/kda_backward.h"
#include "tests/templates/kda_forward_case.h"

using namespace kda_case;
using lathe::KdaBackwardScanParams;

namespace {

KernelSpec walk_spec(const Setup& s) {
  KernelSpec spec = scan_spec(s, "kda_backward_scan");
  spec.params = "KdaBackwardScanParams";
  spec.params_bytes = sizeof(KdaBackwardScanParams);
  spec.last_field = "reserved";
  spec.last_field_offset = offsetof(KdaBackwardScanParams, reserved);
  const std::pair<const char*, bool> flags[] = {{"kFinalState", false},
                                                {"kChunkStates", false},
                                                {"kOutput", false},
                                                {"kSaved", true},
                                                {"kFinalStateGrad", s.has("final")},
                                                {"kInitialStateGrad", s.has("initial")}};
  for (const auto& [member, value] : flags) {
    spec.constants.push_back(Constant::flag(member, member, value));
  }
  return spec;
}

struct Walks {
  ref::Array saved_states, value_grads, dinitial_state;
};

std::optional<Walks> run(const Setup& s, const ref::Kda& a, uint32_t seed) {
  const KernelSpec spec = walk_spec(s);
  const std::string* ptx = compiled_ptx(spec);
  if (ptx == nullptr) return std::nullopt;
  sim::test::Device device("sm_80");
  device.settings.seed = seed;
  device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
  device.load(*ptx);
  KdaBackwardScanParams w = {};
  w.in = inputs_of(device, s, a);
  const int slots = s.has("packed") ? w.in.tokens / 64 + w.in.sequences
                                    : w.in.sequences * ((w.in.tokens + 63) / 64);
  const size_t each = numbers::bytes_of(s.element);
  const size_t states = static_cast<size_t>(slots * a.value_heads) * a.state_size();
  const size_t final_states = static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size();
  w.initial_state = put(device, LATHE_F32, a.initial_state);
  w.d_o = put(device, s.element, a.d_o);
  w.dht = put(device, LATHE_F32, a.dht);
  w.dinitial_state = at(device.buffer(final_states * 4 + 16));
  w.saved_values = at(device.buffer(a.v.size() * each + 16));
  w.value_grads = at(device.buffer(a.v.size() * each + 16));
  w.saved_states = at(device.buffer(states * each + 16));
  w.state_grads = at(device.buffer(states * each + 16));
  w.do_head_stride = w.in.v_head_stride, w.do_token_stride = w.in.v_token_stride;
  w.do_batch_stride = w.in.v_batch_stride;
  w.forward_blocks = w.in.sequences * w.in.value_heads * w.in.value_tiles;
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome = device.run("entry", static_cast<uint32_t>(2 * w.forward_blocks),
                                  static_cast<uint32_t>(spec.threads), w);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  CHECK(outcome.counters.shared_load.conflicts == 0);
  CHECK(outcome.counters.shared_store.conflicts == 0);
  Walks r;
  r.saved_states = take(device, s.element, w.saved_states, states);
  r.value_grads = take(device, s.element, w.value_grads, a.v.size());
  r.dinitial_state = take(device, LATHE_F32, w.dinitial_state, final_states);
  return r;
}

const std::vector<Setup> kSetups = {
    {LATHE_BF16, LATHE_F32, LATHE_F32, 64, 4, "packed single initial final"},
    {LATHE_BF16, LATHE_BF16, LATHE_BF16, 128, 4,
     "packed single l2norm gate_b bias initial final v_first"},
    {LATHE_F16, LATHE_F32, LATHE_F32, 64, 4, "packed single l2norm initial final narrow"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 64, 4, "packed single l2norm gate_b initial final"},
    {LATHE_F32, LATHE_F32, LATHE_F32, 128, 2, "packed single initial final"},
};

ref::Kda backward_case(const Setup& s, uint32_t seed) {
  const int step = s.has("narrow") || s.element == LATHE_F32 ? 4 : 8;
  ref::Kda a = make_case(s, seed, {0, 37, 37, 150}, 2, 1, s.width - step, 16 * s.warps - step);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  a.d_o.resize(a.v.size());
  for (double& x : a.d_o) x = numbers::rounded(s.element, normal(random));
  a.dht.resize(a.initial_state.size());
  for (double& x : a.dht) x = static_cast<float>(normal(random));
  a.chunk = 64;
  return a;
}

// What differs, to the bit, of the gradients of tokens that `among` names, of one head or all.
template <class Among>
int64_t differences(const ref::Kda& a, const ref::Array& x, const ref::Array& y,
                    const Among& among) {
  int64_t count = 0;
  for (int64_t row = 0; row < a.rows(); ++row) {
    for (int64_t head = 0; head < a.value_heads; ++head) {
      if (!among(row, head)) continue;
      const size_t from = a.value_at(row, head);
      count +=
          std::memcmp(&x[from], &y[from], sizeof(double) * static_cast<size_t>(a.value_dim)) != 0;
    }
  }
  return count;
}

}  // namespace

TEST_CASE("kda_backward_scan: gradients of values and states, states at chunks") {
  uint32_t seed = 0;
  for (const Setup& s : kSetups) {
    CAPTURE(walk_spec(s).text());
    const ref::Kda a = backward_case(s, ++seed);
    const auto r = run(s, a, seed);
    if (!r) return;
    const ref::KdaBackward exact = ref::kda_backward(a);
    const ref::KdaForward forward = ref::kda_forward(a);
    const double bound = s.element == LATHE_F32 ? 2e-6 : 8e-3;
    CHECK(rms(r->dinitial_state, exact.dinitial_state) < bound);
    ref::Array dv = r->value_grads;
    for (size_t i = 0; i < dv.size(); ++i) dv[i] *= a.beta[i / static_cast<size_t>(a.value_dim)];
    CHECK(rms(dv, exact.dv) < bound);
    // Chunks of the recurrence lie one after another, slots of sequence n from cu[n] / 64 + n on.
    ref::Array saved, chunks;
    int64_t chunk = 0;
    for (int64_t n = 0; n < a.sequences(); ++n) {
      for (int64_t i = 0; i < (a.begin[n + 1] - a.begin[n] + 63) / 64; ++i, ++chunk) {
        for (int64_t head = 0; head < a.value_heads; ++head) {
          for (int64_t d = 0; d < a.key_dim; ++d) {
            for (int64_t e = 0; e < a.value_dim; ++e) {
              const int64_t slot = (a.begin[n] / 64 + n + i) * a.value_heads + head;
              saved.push_back(r->saved_states[(slot * a.value_dim + e) * a.key_dim + d]);
              chunks.push_back(forward.chunk_states[a.state_at(chunk, head, d, e)]);
            }
          }
        }
      }
    }
    CHECK(rms(saved, chunks) < bound);
  }
}

TEST_CASE("kda_backward_scan: later tokens without a gradient change no earlier gradient") {
  for (const Setup& s : kSetups) {
    CAPTURE(walk_spec(s).text());
    ref::Kda a = backward_case(s, 21), b = a;
    const int64_t from = 37 + 52;  // tokens of the last sequence from here on
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    const auto change = [&](ref::Array& x, int64_t width, lathe_dtype dtype) {
      for (size_t i = static_cast<size_t>(from * width); i < x.size(); ++i) {
        x[i] = numbers::rounded(dtype, normal(random) * 0.1);
      }
    };
    change(b.q, a.heads * a.key_dim, s.element), change(b.k, a.heads * a.key_dim, s.element);
    change(b.v, a.value_heads * a.value_dim, s.element);
    for (size_t i = static_cast<size_t>(from * a.value_heads); i < b.beta.size(); ++i) {
      b.beta[i] = 0.5;
    }
    for (size_t i = a.gate_at(from, 0); i < b.g.size(); ++i) b.g[i] = -0.25;
    for (ref::Kda* one : {&a, &b}) {
      std::fill(one->dht.begin(), one->dht.end(), 0.0);
      std::fill(one->d_o.begin() + static_cast<std::ptrdiff_t>(a.value_at(from, 0)), one->d_o.end(),
                0.0);
    }
    const auto x = run(s, a, 1), y = run(s, b, 2);
    if (!x) return;
    CHECK(differences(a, x->value_grads, y->value_grads,
                      [&](int64_t row, int64_t) { return row < from; }) == 0);
    CHECK(x->dinitial_state == y->dinitial_state);
  }
}

TEST_CASE("kda_backward_scan: a bad gradient reaches no later token, no other sequence or head") {
  for (const Setup& s : kSetups) {
    CAPTURE(walk_spec(s).text());
    const ref::Kda a = backward_case(s, 22);
    ref::Kda b = a;
    const int64_t bad = 37 + 54;
    for (int64_t e = 0; e < a.value_dim; ++e) {
      b.d_o[a.value_at(bad, 1, e)] = std::numeric_limits<double>::quiet_NaN();
    }
    const auto x = run(s, a, 1), y = run(s, b, 2);
    if (!x) return;
    const auto reached = [&](int64_t row, int64_t head) {
      return head == 1 && row >= 37 && row <= bad;
    };
    CHECK(differences(a, x->value_grads, y->value_grads,
                      [&](int64_t row, int64_t head) { return !reached(row, head); }) == 0);
    CHECK(differences(a, x->value_grads, y->value_grads, reached) > 0);
  }
}
