// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A decoding step of a layer of Kimi Delta Attention in double: convolution, recurrence and gated
// norm one after another, over pools of slots, by plain loops.
//
// Row b * tokens + t is token t of sequence b. Channels are those of q, [H, K], of k, [H, K], and
// of v, [HV, V].
#pragma once

#include "reference/kda.h"

namespace ref {

struct KdaDecode {
  // Everything but q, k and v, which the convolution makes. Indices are [B]; sequences begin at
  // multiples of `tokens`.
  Kda kda;
  KdaPool pool;
  int64_t tokens = 1;
  int64_t width = 4, columns = 3;  // W, and the columns of a slot of inputs
  bool silu = true;
  Array qkv, weight, bias;  // [rows, D], [D, W], [D]; no bias: empty
  Array inputs;             // [S, D, columns]: the last inputs, the newest in the last column
  Array output_gate;        // [rows, HV, V]; empty: absent
  Array norm_weight;        // [V]; empty: no norm
  bool gate_silu = false;
  double eps = 1e-5;
  // Records behind the states of slots; ring_length 0: none.
  int64_t ring_length = 0;
  bool append = true;
  Array ring_k, ring_u, ring_g;  // [S, L, H, K], [S, L, HV, V], [S, L, HV, K]
  std::vector<int64_t> ring_count;

  int64_t channels() const { return 2 * kda.heads * kda.key_dim + kda.value_heads * kda.value_dim; }
  size_t input_at(int64_t slot, int64_t channel, int64_t column) const {
    return static_cast<size_t>((slot * channels() + channel) * columns + column);
  }
  size_t key_record(int64_t slot, int64_t record, int64_t h) const {
    return static_cast<size_t>(((slot * ring_length + record) * kda.heads + h) * kda.key_dim);
  }
  size_t value_record(int64_t slot, int64_t record, int64_t hv, int64_t size) const {
    return static_cast<size_t>(((slot * ring_length + record) * kda.value_heads + hv) * size);
  }
};

inline double kda_activation(bool silu, double z) { return silu ? z * kda_sigmoid(z) : z; }

// Convolves a channel of sequence b into `y` [tokens], and rolls its slot.
inline Array kda_decode_channel(KdaDecode* a, int64_t b, int64_t channel) {
  const bool zero = a->pool.starts_from_zero(b);
  Array line;  // inputs before and of the call
  for (int64_t i = 0; i < a->columns; ++i) {
    line.push_back(zero ? 0.0 : a->inputs[a->input_at(a->pool.start(b), channel, i)]);
  }
  for (int64_t t = 0; t < a->tokens; ++t) {
    line.push_back(a->qkv[static_cast<size_t>((b * a->tokens + t) * a->channels() + channel)]);
  }
  Array y;
  for (int64_t t = 0; t < a->tokens; ++t) {
    double z = a->bias.empty() ? 0.0 : a->bias[channel];
    for (int64_t i = 0; i < a->width; ++i) {
      z += a->weight[channel * a->width + i] * line[a->columns + t + 1 - a->width + i];
    }
    y.push_back(kda_activation(a->silu, z));
  }
  for (int64_t i = 0; i < a->columns && a->pool.updates; ++i) {
    a->inputs[a->input_at(a->pool.first_column(b), channel, i)] = line[a->tokens + i];
  }
  return y;
}

// Brings the state of a value head up to date by the records of a slot.
inline void kda_decode_replay(const KdaDecode& a, int64_t slot, int64_t hv, Array* state) {
  const Kda& kda = a.kda;
  for (int64_t r = 0; r < a.ring_count[slot]; ++r) {
    const double* k = &a.ring_k[a.key_record(slot, r, kda.head_of(hv))];
    const double* u = &a.ring_u[a.value_record(slot, r, hv, kda.value_dim)];
    const double* g = &a.ring_g[a.value_record(slot, r, hv, kda.key_dim)];
    for (int64_t i = 0; i < kda.key_dim * kda.value_dim; ++i) {
      const int64_t d = i / kda.value_dim, e = i % kda.value_dim;
      (*state)[i] = std::exp(g[d]) * (*state)[i] + k[d] * u[e];
    }
  }
}

// The norm and the gate of a row of o.
inline void kda_decode_norm(const KdaDecode& a, int64_t row, int64_t hv, double* o) {
  const int64_t V = a.kda.value_dim;
  double mean = 0;
  for (int64_t e = 0; e < V; ++e) mean += o[e] * o[e] / static_cast<double>(V);
  for (int64_t e = 0; e < V; ++e) {
    if (!a.norm_weight.empty()) o[e] *= a.norm_weight[e] / std::sqrt(mean + a.eps);
    if (a.output_gate.empty()) continue;
    const double z = a.output_gate[a.kda.value_at(row, hv, e)];
    o[e] *= a.gate_silu ? z * kda_sigmoid(z) : kda_sigmoid(z);
  }
}

// The recurrence of a value head of sequence b, with its slot. New records go to `first` on.
inline void kda_decode_head(KdaDecode* a, int64_t b, int64_t hv, int64_t first, bool folds,
                            KdaDecode* after, Array* o) {
  const Kda& kda = a->kda;
  const int64_t slot = a->pool.first_column(b), tokens = a->tokens;
  Array state(kda.state_size(), 0.0);
  if (!a->pool.starts_from_zero(b)) state = kda_load(kda, a->pool.states, a->pool.start(b), hv);
  if (a->ring_length > 0) kda_decode_replay(*a, slot, hv, &state);
  if (folds) kda_store(kda, state, slot, hv, &after->pool.states);
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = b * tokens + t;
    const KdaToken token = kda_token(kda, row, hv);
    double* to = &(*o)[kda.value_at(row, hv)];
    if (a->ring_length > 0) {
      Array decayed = state;
      const Array u = kda_decay(kda, token, decayed.data());
      std::copy(token.k.begin(), token.k.end(),
                after->ring_k.begin() +
                    static_cast<std::ptrdiff_t>(a->key_record(slot, first + t, kda.head_of(hv))));
      std::copy(u.begin(), u.end(),
                after->ring_u.begin() + static_cast<std::ptrdiff_t>(
                                            a->value_record(slot, first + t, hv, kda.value_dim)));
      std::copy(token.g.begin(), token.g.end(),
                after->ring_g.begin() +
                    static_cast<std::ptrdiff_t>(a->value_record(slot, first + t, hv, kda.key_dim)));
    }
    kda_step(kda, token, state.data(), to);
    kda_decode_norm(*a, row, hv, to);
  }
  if (a->ring_length == 0 && a->pool.updates) {
    kda_store(kda, state, slot, hv, &after->pool.states);
  }
}

// Returns o [rows, HV, V]. Pools, records and counts are changed in place.
inline Array kda_decode(KdaDecode* a) {
  Kda& kda = a->kda;
  const int64_t rows = kda.rows(), H = kda.heads, K = kda.key_dim, V = kda.value_dim;
  kda.q.assign(static_cast<size_t>(rows * H * K), 0.0);
  kda.k = kda.q;
  kda.v.assign(static_cast<size_t>(rows * kda.value_heads * V), 0.0);
  Array o = kda.v;
  KdaDecode after = *a;
  for (int64_t b = 0; b < kda.sequences(); ++b) {
    if (a->pool.is_padding(b)) continue;
    for (int64_t c = 0; c < a->channels(); ++c) {
      const Array y = kda_decode_channel(a, b, c);
      for (int64_t t = 0; t < a->tokens; ++t) {
        const int64_t row = b * a->tokens + t;
        if (c < 2 * H * K) {
          (c < H * K ? kda.q : kda.k)[static_cast<size_t>(row * H * K + c % (H * K))] = y[t];
        } else {
          kda.v[static_cast<size_t>(row * kda.value_heads * V + c - 2 * H * K)] = y[t];
        }
      }
    }
  }
  for (int64_t b = 0; b < kda.sequences(); ++b) {
    if (a->pool.is_padding(b)) continue;
    const int64_t slot = a->pool.first_column(b);
    const bool rings = a->ring_length > 0 && a->tokens > 0;
    const bool folds = rings && a->ring_count[slot] + a->tokens > a->ring_length;
    const int64_t first = !rings || folds ? 0 : a->ring_count[slot];
    for (int64_t hv = 0; hv < kda.value_heads; ++hv) {
      kda_decode_head(a, b, hv, first, folds, &after, &o);
    }
    if (rings) after.ring_count[slot] = first + (a->append ? a->tokens : 0);
  }
  a->pool = after.pool, a->ring_k = after.ring_k, a->ring_u = after.ring_u;
  a->ring_g = after.ring_g, a->ring_count = after.ring_count;
  return o;
}

}  // namespace ref
