// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Computes the gradients of kda in double, by the recurrence run backwards; no chunk appears.
//
// With Sd = Diag(exp(g)) S_prev, e = v - Sd^T k, u = beta e, S = Sd + k u^T and o = scale S^T q,
// and with dS the gradient of S, first from later tokens:
//
//   dS <- dS + scale q do^T        dq = scale S do
//   du = dS^T k                    dk = dS u - Sd de
//   de = beta du = dv              dbeta = du . e
//   dSd = dS - k de^T              dg = rowsum(dSd .* Sd)
//   dS_prev = Diag(exp(g)) dSd
#pragma once

#include "reference/kda.h"

namespace ref {

struct KdaBackward {
  Array dq, dk, dv, dg, dbeta;         // of the inputs as given: raw gate, logit, before the norm
  Array dA_log, ddt_bias;              // sums over all tokens; zeros where the gate is given
  Array dA_log_terms, ddt_bias_terms;  // of these sums: the squares of their terms, added up
  Array dinitial_state;
};

// Hands the gradients of the gates and the logit on to what they were made from.
inline void kda_gate_backward(const Kda& a, int64_t row, int64_t hv, int64_t d, double dg,
                              KdaBackward* out) {
  if (!a.gate) {
    out->dg[a.gate_at(row, hv, d)] = dg;
    return;
  }
  const double z = kda_gate_input(a, row, hv, d), g = kda_gate(a, row, hv, d);
  const double rate = a.A_log.empty() ? 1.0 : std::exp(a.A_log[hv]);
  double dz = 0, dA_log = 0;
  if (a.lower_bound < 0) {
    const double s = kda_sigmoid(rate * z);
    dz = dg * a.lower_bound * s * (1 - s) * rate;
    dA_log = dz * z;
  } else {
    dz = -rate * kda_sigmoid(z) * dg;
    dA_log = dg * g;
  }
  out->dg[a.gate_at(row, hv, d)] = dz;
  out->ddt_bias[hv * a.key_dim + d] += dz;
  out->ddt_bias_terms[hv * a.key_dim + d] += dz * dz;
  if (a.A_log.empty()) return;
  out->dA_log[hv] += dA_log;
  out->dA_log_terms[hv] += dA_log * dA_log;
}

inline double kda_beta_backward(const Kda& a, double beta, double dbeta) {
  if (!a.sigmoid) return dbeta;
  return dbeta * beta * (1 - beta / (a.negative_eigenvalues ? 2.0 : 1.0));
}

// Goes back through x / |x|, row by row: dx = r (dn - n (dn . n)). Rows behind the last sequence
// have no gradient.
inline void kda_norm_backward(const Kda& a, const Array& x, Array* gradient) {
  for (size_t at = 0; at < a.key_at(a.rows(), 0); at += static_cast<size_t>(a.key_dim)) {
    const double r = kda_norm(a, x, at);
    double dot = 0;
    for (int64_t d = 0; d < a.key_dim; ++d) dot += (*gradient)[at + d] * r * x[at + d];
    for (int64_t d = 0; d < a.key_dim; ++d) {
      (*gradient)[at + d] = r * ((*gradient)[at + d] - r * x[at + d] * dot);
    }
  }
}

// Goes back through one token. `decayed` is Sd, `ds` the gradient of S coming in and of S_prev
// going out.
inline void kda_step_backward(const Kda& a, int64_t row, int64_t hv, const Array& decayed,
                              Array* ds, KdaBackward* out) {
  const KdaToken t = kda_token(a, row, hv);
  const int64_t v = a.value_dim;
  const double* d_o = a.d_o.empty() ? nullptr : &a.d_o[a.value_at(row, hv)];
  const size_t key = a.key_at(row, a.head_of(hv));
  Array error = t.v, du(static_cast<size_t>(v), 0.0);
  for (int64_t d = 0; d < a.key_dim; ++d) {
    for (int64_t e = 0; e < v; ++e) error[e] -= decayed[d * v + e] * t.k[d];
  }
  for (int64_t d = 0; d < a.key_dim; ++d) {
    for (int64_t e = 0; e < v && d_o; ++e) {
      const double after = decayed[d * v + e] + t.k[d] * t.beta * error[e];
      out->dq[key + d] += a.scale * after * d_o[e];
      (*ds)[d * v + e] += a.scale * t.q[d] * d_o[e];
    }
    for (int64_t e = 0; e < v; ++e) du[e] += (*ds)[d * v + e] * t.k[d];
  }
  double dbeta = 0;
  for (int64_t e = 0; e < v; ++e) {
    dbeta += du[e] * error[e];
    out->dv[a.value_at(row, hv, e)] = t.beta * du[e];
  }
  out->dbeta[a.beta_at(row, hv)] = kda_beta_backward(a, t.beta, dbeta);
  for (int64_t d = 0; d < a.key_dim; ++d) {
    const double alpha = std::exp(t.g[d]);
    double dg = 0;
    for (int64_t e = 0; e < v; ++e) {
      const int64_t i = d * v + e;
      const double de = t.beta * du[e];
      out->dk[key + d] += (*ds)[i] * t.beta * error[e] - decayed[i] * de;
      const double gradient = (*ds)[i] - t.k[d] * de;
      dg += gradient * decayed[i];
      (*ds)[i] = alpha * gradient;
    }
    kda_gate_backward(a, row, hv, d, dg, out);
  }
}

inline KdaBackward kda_backward(const Kda& a) {
  KdaBackward out;
  const size_t states = static_cast<size_t>(a.sequences() * a.value_heads) * a.state_size();
  out.dq.assign(a.q.size(), 0.0), out.dk.assign(a.k.size(), 0.0);
  out.dv.assign(a.v.size(), 0.0), out.dg.assign(a.g.size(), 0.0);
  out.dbeta.assign(a.beta.size(), 0.0);
  out.dA_log.assign(static_cast<size_t>(a.value_heads), 0.0);
  out.ddt_bias.assign(static_cast<size_t>(a.value_heads * a.key_dim), 0.0);
  out.dA_log_terms = out.dA_log, out.ddt_bias_terms = out.ddt_bias;
  out.dinitial_state.assign(states, 0.0);
  for (int64_t n = 0; n < a.sequences(); ++n) {
    for (int64_t hv = 0; hv < a.value_heads; ++hv) {
      std::vector<Array> decayed;
      Array state = kda_load(a, a.initial_state, n, hv);
      for (int64_t row = a.begin[n]; row < a.begin[n + 1]; ++row) {
        const KdaToken t = kda_token(a, row, hv);
        const Array u = kda_decay(a, t, state.data());
        decayed.push_back(state);
        for (int64_t i = 0, d = 0; d < a.key_dim; ++d) {
          for (const double each : u) state[i++] += t.k[d] * each;
        }
      }
      Array ds = kda_load(a, a.dht, n, hv);
      for (int64_t row = a.begin[n + 1]; row-- > a.begin[n];) {
        kda_step_backward(a, row, hv, decayed[row - a.begin[n]], &ds, &out);
      }
      kda_store(a, ds, n, hv, &out.dinitial_state);
    }
  }
  if (a.l2norm) {
    kda_norm_backward(a, a.q, &out.dq);
    kda_norm_backward(a, a.k, &out.dk);
  }
  return out;
}

}  // namespace ref
