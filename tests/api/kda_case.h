// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One case of the KDA operators, described in a line of a table: its inputs, the call through
// lathe.h, and what the token recurrence in double says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/harness/session.h"
#include "tests/ref/kda.h"

namespace apitest {

// One rank among several: its group, its part and how it calls. Inputs are then those of the part,
// but for offsets and states, which are those of all tokens.
struct KdaSeat {
  lathe_group* group = nullptr;
  lathe_shard* shard = nullptr;
  unsigned flags = 0;
  void* stream = nullptr;
  int64_t tokens = 0;  // of each row
  int64_t chunks = 0;  // of chunk_states, of each row
  bool captured = false;
};

struct KdaCase {
  lathe_dtype element = LATHE_BF16, gate_dtype = LATHE_F32, beta_dtype = LATHE_BF16;
  int64_t heads = 1, group = 1, key_dim = 32, value_dim = 32;
  int64_t batch = 1, tokens = 4;
  std::vector<int64_t> cu_seqlens;      // empty: not packed
  lathe_dtype index_dtype = LATHE_I32;  // of offsets and slots
  int gate = 0;                         // 0: given, 1: by A_log, 2: bounded, 3: bounded with A_log
  bool dt_bias = false, l2norm = false, sigmoid = false, negative = false, v_first = false;
  enum States { none, both, from, into, pool, columns } states = both;
  double scale = 0;         // 0: the default
  int64_t gap = 0;          // elements between heads and between tokens of q, k, v, g, o and states
  double weakest = -2;      // given gates lie between this and 0
  double strong_share = 0;  // of the given gates that are -1000
  double lower_bound = -4.5;
  unsigned char poison = 0xff;  // of what lies between elements

  // Of the chunked operator alone.
  int64_t padding = 0;  // rows behind the last packed sequence: NaN
  int64_t chunk = 64;   // of chunk_states
  bool chunk_states = false, safe_gate = false;
  int segments = 0, warmup_segments = 0;
  bool backward = false;  // the gradients named here, as far as the case has what they are of
  std::string gradients = "dq,dk,dv,dg,dbeta,dA_log,ddt_bias,dinitial_state";
  bool dht = false;
  bool saved = false;             // disable_recompute
  bool apart = false;             // forward and backward as two plans
  bool captured = false;          // over ranks: calls are replays of graphs
  const KdaSeat* seat = nullptr;  // null: all tokens are here

  int64_t value_heads() const { return heads * group; }
  int64_t sequences() const {
    return cu_seqlens.empty() ? batch : static_cast<int64_t>(cu_seqlens.size()) - 1;
  }
  int64_t rows() const {
    if (seat != nullptr) return (cu_seqlens.empty() ? batch : 1) * seat->tokens;
    return (cu_seqlens.empty() ? batch * tokens : cu_seqlens.back()) + padding;
  }
  bool has_final_state() const { return states == both || states == into; }
  bool wants(const std::string& gradient) const {
    return backward && ("," + gradients + ",").find("," + gradient + ",") != std::string::npos;
  }
  std::string text() const;

 private:
  std::string chunked_text() const;
};

// Every value is one of its dtype.
struct KdaInputs {
  ref::Kda kda;
  ref::KdaPool pool;
};
KdaInputs make_kda_inputs(const KdaCase& kda, uint64_t seed = 1);

// Under the names of the outputs; final_state or state_pool if the case has them.
using KdaValues = std::map<std::string, std::vector<double>>;
KdaValues kda_reference(const KdaCase& kda, const KdaInputs& inputs);
KdaValues kda_chunked_reference(const KdaCase& kda, const KdaInputs& inputs);
// kda_recurrent through lathe.h; nothing but batch, tokens, sequences and slots is left open.
KdaValues run_kda_recurrent(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs);
// kda through lathe.h, in one call or two.
KdaValues run_kda(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs);

// The same on parts.size() ranks that are threads, part r of parts[r] tokens of each row, put
// together: every state from its owner alone, sums of parameter gradients as `flags` say.
KdaValues run_kda_ranks(lathe_context* context, const KdaCase& kda, const KdaInputs& inputs,
                        const std::vector<int64_t>& parts, unsigned flags = 0);
// Tokens [begin, end) of each row; offsets and states as they are.
KdaInputs kda_part(const KdaCase& kda, const KdaInputs& inputs, int64_t begin, int64_t end);

// doctest CHECKs: every value that the reference has, within the bounds for chunked kernels, and no
// finding of the simulator. `slack` times that of 16-bit inputs, where roundings add up.
void check_kda(const KdaCase& kda, const KdaInputs& inputs, const KdaValues& actual,
               double slack = 1);
// Of an output, relative to its size.
double kda_bound(const KdaCase& kda, const std::string& output);
lathe_dtype kda_dtype(const KdaCase& kda, const std::string& output);

}  // namespace apitest
