// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds one case of the KDA operators, described in a line of a table: its inputs, its
// calls, and the comparison with the token recurrence in double.
#pragma once

#include <string>
#include <vector>

#include "reference/kda.h"
#include "tests/harness/check.h"
#include "tests/harness/ranks.h"

namespace apitest {

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
  bool any_gates = false;   // given gates of every size instead: 0, weak, strong and -1000
  double lower_bound = -4.5;
  unsigned char poison = 0xff;  // of what lies between elements
  int64_t padding = 0;          // rows behind the last packed sequence: NaN
  // The tile of the walks, or of kda_recurrent, has so many warps; 0 takes the tile that is chosen.
  int warps = 0;
  // Slots of a pool may lie outside of it, and accepted columns outside of the sequence's.
  bool wild_slots = false;
  // With a pool: 1 gives sources, 2 says which sequences have a state before, 4 names a slot that
  // stands for padding, 8 leaves the pool as it is.
  int slot_options = 0;
  lathe_dtype pool_dtype = LATHE_F32;
  int64_t checkpoints = 0;  // up to so many for each sequence, with a pool of the chunked operator
  // Errors are held against the bounds that the kernels keep at these lengths, which are far inside
  // the ones that the operator promises, and no launch may have a bank conflict.
  bool tight = false;

  // These belong to the chunked operator alone.
  int64_t chunk = 64;  // tokens between two chunk_states
  bool chunk_states = false, safe_gate = false;
  int segments = 0, warmup_segments = 0;
  bool forward = true;    // or the backward by itself
  bool backward = false;  // the gradients named here, as far as the case has what they are of
  std::string gradients = "dq,dk,dv,dg,dbeta,dA_log,ddt_bias,dinitial_state";
  bool dht = false;
  bool saved = false;  // disable_recompute
  bool apart = false;  // forward and backward as two plans

  int64_t value_heads() const { return heads * group; }
  bool packed() const { return !cu_seqlens.empty(); }
  int64_t batch_rows() const { return packed() ? 1 : batch; }
  int64_t sequences() const { return packed() ? std::ssize(cu_seqlens) - 1 : batch; }
  int64_t rows() const { return (packed() ? cu_seqlens.back() : batch * tokens) + padding; }
  bool has_pool() const { return states == pool || states == columns; }
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
constexpr ref::Array ref::Kda::*kPerToken[] = {&ref::Kda::q, &ref::Kda::k,    &ref::Kda::v,
                                               &ref::Kda::g, &ref::Kda::beta, &ref::Kda::d_o};
KdaInputs make_kda_inputs(const KdaCase& kda, uint64_t seed = 1);
// Returns tokens [from, to) of inputs of one sequence.
KdaInputs kda_slice(const KdaInputs& inputs, int64_t from, int64_t to);

// These functions make the call of kda: forward, or forward and backward in one; and the call of
// the backward by itself, which reads what a forward left in saved_values and saved_states, if the
// case says so.
Call kda_call(const KdaCase& kda, const KdaInputs& inputs);
Call kda_backward_call(const KdaCase& kda, const KdaInputs& inputs, const Outputs& saved);
Call kda_recurrent_call(const KdaCase& kda, const KdaInputs& inputs);
// Makes a call with the tensors and options that the two operators share; states lie `state_gap`
// elements apart.
Call kda_base_call(const char* op, const KdaCase& kda, const KdaInputs& inputs, int64_t state_gap);
Placement kda_placement(const KdaCase& kda, int64_t gap);
// Adds the pool, with what names its slots, and its options. State rows lie `gap` elements apart.
void put_kda_pool(const KdaCase& kda, const ref::KdaPool& pool, int64_t gap, Call* call);
// Checks the slots that the reference changes against it; all others keep their bits.
void check_kda_pool(const KdaInputs& inputs, const ref::Array& actual, const ref::Array& expected,
                    double bound);
// Returns [slots, HV, K, V] or [slots, HV, V, K].
std::vector<int64_t> kda_state_shape(const KdaCase& kda, int64_t slots);
// Returns the number of chunks of a batch row, or of the packed sequences, that begin before token
// `until`.
int64_t kda_chunks_before(const KdaCase& kda, int64_t until);
// Returns the number of slots of saved_states for `tokens` of each batch row.
int64_t kda_slots_of(const KdaCase& kda, int64_t tokens);

// Runs a call and requires that there are no findings.
Outputs run_kda_call(const KdaCase& kda, const Call& call);
// These functions run so: kda in one call or in two, kda_recurrent, and kda over parts.size()
// ranks, of which rank r has parts[r] tokens of each row, put together.
Outputs run_kda(const KdaCase& kda, const KdaInputs& inputs);
Outputs run_kda_recurrent(const KdaCase& kda, const KdaInputs& inputs);
Outputs run_kda_ranks(const KdaCase& kda, const KdaInputs& inputs,
                      const std::vector<int64_t>& parts, unsigned flags = 0, bool graph = false);
// Runs kda over ranks whose shards are a table of ranges, or as a balance has it; `answers`
// gets those of all calls. States of chunks and saved states need a table.
Outputs run_kda_ranks(const KdaCase& kda, const KdaInputs& inputs, Ranks ranks,
                      std::vector<RanksAnswer>* answers = nullptr);

// Returns the recurrence's values, under the names of the outputs.
Outputs kda_reference(const KdaCase& kda, const KdaInputs& inputs);
Outputs kda_recurrent_reference(const KdaCase& kda, const KdaInputs& inputs);
// Checks that every value that the reference has is within the bounds for chunked kernels, and rows
// behind the last sequence are 0. The bounds of 16-bit inputs, where roundings add up, are `slack`
// times as wide.
void check_kda(const KdaCase& kda, const KdaInputs& inputs, const Outputs& actual,
               double slack = 1);
// Checks the same for kda_recurrent; slots of a pool that it does not write keep their bits.
void check_kda_recurrent(const KdaCase& kda, const KdaInputs& inputs, const Outputs& actual);
// Runs the case and checks its outputs.
Outputs check_kda(const KdaCase& kda, const KdaInputs& inputs);
// Returns the bound of an output's error, relative to its size.
double kda_bound(const KdaCase& kda, const std::string& output);
lathe_dtype kda_dtype(const KdaCase& kda, const std::string& output);

}  // namespace apitest
