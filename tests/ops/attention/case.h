// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds one case of flash_attention, described in a line: its inputs, the call through
// lathe.h, and the comparison with float64 by the rule of FlashAttention's tests.
#pragma once

#include "reference/attention.h"
#include "tests/harness/ranks.h"

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
  bool saved_forward = false;   // forward and backward as two plans
  bool given_forward = false;   // the backward alone, of the reference's out and lse
  bool fixed_lengths = false;   // the problem declares the lengths
  std::string tile, main_tile;  // of the forward and of the backward; "": the default
  std::string main_kernel = "attention_backward";  // whose candidates hold main_tile
  std::map<std::string, std::string> texts;        // of score_mod and mask_mod
  Values capture;                                  // float32 capture_0, if there is any
  std::map<std::string, std::string> options;      // more of them
  uint64_t seed = 1;

  int64_t heads() const { return kv_heads * group; }
  bool wants(const std::string& name) const {
    return ("," + gradients + ",").find("," + name + ",") != std::string::npos;
  }
  int64_t sequences() const { return static_cast<int64_t>(queries.size()); }
  std::string text() const;
};

// Makes seeded inputs; every value is one of its dtype. They have no padding or poison.
ref::Attention make_inputs(const AttentionCase& attention);

// Says what a call computes: a forward with its outputs, the whole step, or a backward that reads
// `saved`.
enum class AttentionPart { forward, both, backward };
Call attention_call(const AttentionCase& attention, const ref::Attention& inputs,
                    AttentionPart part, const Outputs& saved = {});
// Runs the call or, with a saved forward, the two calls of a case. Outputs have their padding rows.
Answer run_attention(lathe_context* context, const AttentionCase& attention,
                     const ref::Attention& inputs);
// Does the same over ranks, with whole tensors without padding.
RanksAnswer run_attention_ranks(const AttentionCase& attention, const ref::Attention& inputs,
                                const Ranks& ranks);

// Makes doctest CHECKs: outputs against float64, max|a-r| at most twice that of a plain computation
// of the same precision; padding rows; all-ones values.
void check_attention(const AttentionCase& attention, const ref::Attention& inputs,
                     const Outputs& actual);
void check_attention(const AttentionCase& attention, const ref::Attention& inputs,
                     const Answer& answer);  // and what the simulator found
// Runs and checks it in the context that all tests of a program share.
Answer checked(const AttentionCase& attention, const ref::Attention& inputs);
Answer checked(const AttentionCase& attention);

// Says whether a case runs by the kernels for Hopper alone: of their family, on such a device.
bool by_warpgroups();
// Returns the canonical texts of an answer's kernels, each once.
std::vector<std::string> kernels_of(const Answer& answer);

}  // namespace apitest
