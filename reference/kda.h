// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Kimi Delta Attention in double, token by token, by plain loops over the definition; nothing is
// shared with the kernels and no chunk appears.
//
// Tokens lie on one flat axis of `rows`; sequence n holds [begin[n], begin[n + 1]). A batch of B
// rows of T tokens is the case begin = 0, T, 2T, ... . Value head hv reads the query and key of
// head hv / (HV / H).
//
//   S <- Diag(exp(g)) S;   S <- S + beta k (v - S^T k)^T;   o = scale S^T q
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ref {

using Array = std::vector<double>;

struct Kda {
  int64_t heads = 1, value_heads = 1, key_dim = 1, value_dim = 1;
  std::vector<int64_t> begin;  // sequences + 1 offsets on the flat axis
  double scale = 1;
  bool l2norm = false;                // of q and k
  bool gate = false;                  // g is the raw gate
  double lower_bound = 0;             // 0: absent; chooses the gate's formula
  bool sigmoid = false;               // beta is a logit
  bool negative_eigenvalues = false;  // 2 sigmoid
  bool state_v_first = false;         // states are [.., V, K]
  int64_t chunk = 64;                 // of chunk_states alone
  Array q, k, v, g, beta;  // [rows, H, K] twice, [rows, HV, V], [rows, HV, K], [rows, HV]
  Array A_log, dt_bias;    // [HV], [HV * K]; empty: absent
  Array initial_state;     // [N, HV, K, V]; empty: absent
  Array d_o, dht;          // gradients of o and of the final state; empty: absent

  int64_t rows() const { return begin.back(); }
  int64_t sequences() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t head_of(int64_t hv) const { return hv / (value_heads / heads); }
  size_t state_size() const { return static_cast<size_t>(key_dim * value_dim); }

  size_t key_at(int64_t row, int64_t h, int64_t d = 0) const {
    return static_cast<size_t>((row * heads + h) * key_dim + d);
  }
  size_t value_at(int64_t row, int64_t hv, int64_t e = 0) const {
    return static_cast<size_t>((row * value_heads + hv) * value_dim + e);
  }
  size_t gate_at(int64_t row, int64_t hv, int64_t d = 0) const {
    return static_cast<size_t>((row * value_heads + hv) * key_dim + d);
  }
  size_t beta_at(int64_t row, int64_t hv) const {
    return static_cast<size_t>(row * value_heads + hv);
  }
  // Returns the offset in [anything, HV, K, V] or [anything, HV, V, K].
  size_t state_at(int64_t slot, int64_t hv, int64_t d, int64_t e) const {
    const int64_t within = state_v_first ? e * key_dim + d : d * value_dim + e;
    return static_cast<size_t>((slot * value_heads + hv) * key_dim * value_dim + within);
  }
};

inline double kda_sigmoid(double z) {
  return z >= 0 ? 1.0 / (1.0 + std::exp(-z)) : std::exp(z) / (1.0 + std::exp(z));
}
inline double kda_softplus(double z) {
  return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z)));
}

// A token of one value head as the recurrence sees it, every transform done.
struct KdaToken {
  Array q, k, g, v;  // [K] three times, [V]
  double beta = 0;
};

// Returns 1 / sqrt(sum x^2 + eps) of a row of q or k.
inline double kda_norm(const Kda& a, const Array& x, size_t at) {
  double sum = 1e-6;
  for (int64_t d = 0; d < a.key_dim; ++d) sum += x[at + d] * x[at + d];
  return 1.0 / std::sqrt(sum);
}

// Returns the gate's argument: the raw gate and its bias.
inline double kda_gate_input(const Kda& a, int64_t row, int64_t hv, int64_t d) {
  const double bias = a.dt_bias.empty() ? 0.0 : a.dt_bias[hv * a.key_dim + d];
  return a.g[a.gate_at(row, hv, d)] + bias;
}
inline double kda_gate(const Kda& a, int64_t row, int64_t hv, int64_t d) {
  if (!a.gate) return a.g[a.gate_at(row, hv, d)];
  const double z = kda_gate_input(a, row, hv, d);
  const double rate = a.A_log.empty() ? 1.0 : std::exp(a.A_log[hv]);
  return a.lower_bound < 0 ? a.lower_bound * kda_sigmoid(rate * z) : -rate * kda_softplus(z);
}
inline double kda_beta(const Kda& a, int64_t row, int64_t hv) {
  const double beta = a.beta[a.beta_at(row, hv)];
  return a.sigmoid ? (a.negative_eigenvalues ? 2.0 : 1.0) * kda_sigmoid(beta) : beta;
}

inline KdaToken kda_token(const Kda& a, int64_t row, int64_t hv) {
  const size_t at = a.key_at(row, a.head_of(hv));
  const double norm_q = a.l2norm ? kda_norm(a, a.q, at) : 1.0;
  const double norm_k = a.l2norm ? kda_norm(a, a.k, at) : 1.0;
  KdaToken token;
  for (int64_t d = 0; d < a.key_dim; ++d) {
    token.q.push_back(norm_q * a.q[at + d]);
    token.k.push_back(norm_k * a.k[at + d]);
    token.g.push_back(kda_gate(a, row, hv, d));
  }
  const auto v = a.v.begin() + static_cast<std::ptrdiff_t>(a.value_at(row, hv));
  token.v.assign(v, v + a.value_dim);
  token.beta = kda_beta(a, row, hv);
  return token;
}

// Sd = Diag(exp(g)) S in place, then u = beta (v - Sd^T k), which is returned.
inline Array kda_decay(const Kda& a, const KdaToken& t, double* state) {
  Array u = t.v;
  for (int64_t d = 0; d < a.key_dim; ++d) {
    const double alpha = std::exp(t.g[d]);
    for (int64_t e = 0; e < a.value_dim; ++e) {
      double& s = state[d * a.value_dim + e];
      s *= alpha;
      u[e] -= s * t.k[d];
    }
  }
  for (double& each : u) each *= t.beta;
  return u;
}

// One token: `state` is [K, V] whatever the layout outside; `o` gets V values.
inline void kda_step(const Kda& a, const KdaToken& t, double* state, double* o) {
  const Array u = kda_decay(a, t, state);
  std::fill(o, o + a.value_dim, 0.0);
  for (int64_t d = 0; d < a.key_dim; ++d) {
    for (int64_t e = 0; e < a.value_dim; ++e) {
      double& s = state[d * a.value_dim + e];
      s += t.k[d] * u[e];
      o[e] += a.scale * s * t.q[d];
    }
  }
}

// A state of `states` as [K, V]; zeros if there are none. And back.
inline Array kda_load(const Kda& a, const Array& states, int64_t slot, int64_t hv) {
  Array state(a.state_size(), 0.0);
  for (int64_t i = 0; i < a.key_dim * a.value_dim && !states.empty(); ++i) {
    state[i] = states[a.state_at(slot, hv, i / a.value_dim, i % a.value_dim)];
  }
  return state;
}
inline void kda_store(const Kda& a, const Array& state, int64_t slot, int64_t hv, Array* states) {
  for (int64_t i = 0; i < a.key_dim * a.value_dim; ++i) {
    (*states)[a.state_at(slot, hv, i / a.value_dim, i % a.value_dim)] = state[i];
  }
}

struct KdaForward {
  Array o, final_state;
  Array chunk_states;  // [chunks of all sequences, HV, K, V]: at the start of each chunk
};

inline KdaForward kda_forward(const Kda& a) {
  KdaForward out;
  const size_t states = static_cast<size_t>(a.value_heads) * a.state_size();
  out.o.assign(a.v.size(), 0.0);
  out.final_state.assign(static_cast<size_t>(a.sequences()) * states, 0.0);
  int64_t first_chunk = 0;
  for (int64_t n = 0; n < a.sequences(); ++n) {
    const int64_t tokens = a.begin[n + 1] - a.begin[n];
    const int64_t chunks = (tokens + a.chunk - 1) / a.chunk;
    out.chunk_states.resize(static_cast<size_t>(first_chunk + chunks) * states);
    for (int64_t hv = 0; hv < a.value_heads; ++hv) {
      Array state = kda_load(a, a.initial_state, n, hv);
      for (int64_t t = 0; t < tokens; ++t) {
        if (t % a.chunk == 0) {
          kda_store(a, state, first_chunk + t / a.chunk, hv, &out.chunk_states);
        }
        const int64_t row = a.begin[n] + t;
        kda_step(a, kda_token(a, row, hv), state.data(), &out.o[a.value_at(row, hv)]);
      }
      kda_store(a, state, n, hv, &out.final_state);
    }
    first_chunk += chunks;
  }
  return out;
}

// States that live in slots of a pool [S, HV, K, V].
struct KdaPool {
  int64_t slots = 0;
  int64_t columns = 0;                     // 0: indices are [N], otherwise [N, columns]
  std::vector<int64_t> indices;            // where the first column holds no slot: padding
  std::vector<int64_t> accepted;           // [N], with columns; empty: 1
  std::vector<int64_t> sources;            // [N]: the slots that are read; empty: those above
  std::vector<int64_t> has_initial_state;  // [N]; empty: 1
  int64_t null_slot = -1;                  // is no slot
  bool updates = true;                     // else states are only read
  // Without columns: offsets [N + 1] of each sequence's checkpoints, after how many of its tokens
  // each is, and where its state goes. Empty: none.
  std::vector<int64_t> cu_checkpoints, checkpoint_tokens, checkpoint_slots;
  Array states;

  bool is_slot(int64_t slot) const { return slot >= 0 && slot < slots && slot != null_slot; }
  int64_t first_column(int64_t n) const { return indices[n * std::max<int64_t>(columns, 1)]; }
  bool starts_from_zero(int64_t n) const {
    if (!has_initial_state.empty() && has_initial_state[n] == 0) return true;
    return !sources.empty() && !is_slot(sources[n]);
  }
  // Returns the slot that sequence n starts from, if it does not start from zero; -1: none.
  int64_t start(int64_t n) const {
    if (!sources.empty()) return sources[n];
    const int64_t column = accepted.empty() ? 0 : accepted[n] - 1;
    if (column < 0 || column >= std::max<int64_t>(columns, 1)) return -1;
    const int64_t slot = indices[n * std::max<int64_t>(columns, 1) + column];
    return is_slot(slot) ? slot : -1;
  }
  bool is_padding(int64_t n) const {
    return !is_slot(first_column(n)) || (!starts_from_zero(n) && start(n) < 0);
  }
};

// o; the pool is changed in place. Without columns a state is written after the last token and at
// checkpoints, with them after each token that has one.
inline Array kda_pool_forward(const Kda& a, KdaPool* pool) {
  Array o(a.v.size(), 0.0);
  const auto keep = [&](const Array& state, int64_t slot, int64_t hv) {
    if (pool->updates && pool->is_slot(slot)) kda_store(a, state, slot, hv, &pool->states);
  };
  const auto check = [&](const Array& state, int64_t n, int64_t token, int64_t hv) {
    if (pool->cu_checkpoints.empty()) return;
    for (int64_t c = pool->cu_checkpoints[n]; c < pool->cu_checkpoints[n + 1]; ++c) {
      if (pool->checkpoint_tokens[c] == token) keep(state, pool->checkpoint_slots[c], hv);
    }
  };
  for (int64_t n = 0; n < a.sequences(); ++n) {
    const int64_t tokens = a.begin[n + 1] - a.begin[n];
    for (int64_t hv = 0; hv < a.value_heads && !pool->is_padding(n); ++hv) {
      Array state(static_cast<size_t>(a.key_dim * a.value_dim), 0.0);
      if (!pool->starts_from_zero(n)) state = kda_load(a, pool->states, pool->start(n), hv);
      check(state, n, 0, hv);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t row = a.begin[n] + t;
        kda_step(a, kda_token(a, row, hv), state.data(), &o[a.value_at(row, hv)]);
        if (t < pool->columns) keep(state, pool->indices[n * pool->columns + t], hv);
        check(state, n, t + 1, hv);
      }
      if (pool->columns == 0) keep(state, pool->first_column(n), hv);
    }
  }
  return o;
}

}  // namespace ref
