// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One case of flash_attention, described in a line: its inputs, the call through lathe.h, and the
// comparison with float64 by the rule of FlashAttention's tests.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/api/session.h"
#include "tests/ref/attention.h"

namespace apitest {

enum class Slopes { none, per_head, per_sequence };

struct AttentionCase {
  lathe_dtype dtype = LATHE_BF16;
  int64_t head_dim = 64, value_dim = 64, kv_heads = 1, group = 1;
  std::vector<int64_t> queries = {1}, keys = {1};  // of each sequence; all the same unless packed
  bool packed = false;
  lathe_dtype cu_dtype = LATHE_I32;
  int64_t padding_q = 0, padding_k = 0;  // rows past the last offset: NaN
  bool causal = false;
  int64_t left = -1, right = -1;
  double softcap = 0, scale = 0;  // scale 0: D^-0.5
  Slopes slopes = Slopes::none;
  bool sinks = false;     // that of head 0 is -inf where the seed is a multiple of 3
  bool ones = false;      // v is 1 everywhere
  int64_t poisoned = -1;  // a sequence all of whose inputs are NaN
  Placement placement;    // of q, k, v, out and their gradients
  bool backward = false;  // the gradients named here, dsinks where there are sinks
  std::string gradients = "dq,dk,dv,dsinks";
  bool dlse = false;
  bool deterministic = false;
  bool saved_forward = false;  // forward and backward as two plans
  bool fixed_lengths = false;  // the problem promises the lengths
  uint64_t seed = 1;

  int64_t heads() const { return kv_heads * group; }
  bool wants(const std::string& name) const {
    return ("," + gradients + ",").find("," + name + ",") != std::string::npos;
  }
  int64_t sequences() const { return static_cast<int64_t>(queries.size()); }
  std::string text() const;
};

using Values = std::map<std::string, std::vector<double>>;

// Seeded; every value is one of its dtype. Without padding or poison.
ref::Attention make_inputs(const AttentionCase& attention);

// Runs a case: the outputs by name, padding rows included.
Values run_attention(lathe_context* context, const AttentionCase& attention,
                     const ref::Attention& inputs);

// doctest CHECKs: outputs against float64, max|a-r| at most twice that of a plain computation of
// the same precision; padding rows; all-ones values; no finding of the simulator.
void check_attention(const AttentionCase& attention, const ref::Attention& inputs,
                     const Values& actual);

// The kernels of all plans since the last call, as canonical texts.
std::vector<std::string> take_kernels();

}  // namespace apitest
