// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds one case of kda_decode: its inputs, its call, and the comparison with the layer
// in double.
#pragma once

#include <string>
#include <vector>

#include "reference/kda_decode.h"
#include "tests/harness/check.h"

namespace apitest {

struct KdaDecodeCase {
  lathe_dtype element = LATHE_F32, gate_dtype = LATHE_F32, beta_dtype = LATHE_F32;
  lathe_dtype weight_dtype = LATHE_F32, norm_dtype = LATHE_F32, output_gate_dtype = LATHE_F32;
  lathe_dtype pool_dtype = LATHE_F32, ring_dtype = LATHE_F32, index_dtype = LATHE_I32;
  int64_t heads = 2, group = 1, key_dim = 32, value_dim = 32;
  int64_t batch = 3, tokens = 0;  // 0: one token, and tensors without the dim
  int64_t width = 4, columns = 3;
  int gate = 0;  // 0: given, 1: by A_log, 2: bounded, 3: bounded with A_log
  bool dt_bias = false, l2norm = true, sigmoid = false, negative = false, v_first = false;
  bool bias = false, silu = true, norm = true, output_gate = true, gate_silu = false;
  bool sources = false, updates = true, append = true;
  int64_t null_slot = -1;
  int64_t ring_length = 0;
  int64_t gap = 0;  // elements between rows of tensors with strides

  int64_t value_heads() const { return heads * group; }
  int64_t each() const { return tokens == 0 ? 1 : tokens; }
  int64_t rows() const { return batch * each(); }
  std::string text() const;
};

// Every value is one of its dtype. Slots that nobody reads hold infinities, and so do records that
// do not count.
ref::KdaDecode make_kda_decode_inputs(const KdaDecodeCase& c, uint64_t seed = 1);
Call kda_decode_call(const KdaDecodeCase& c, const ref::KdaDecode& inputs);
// Runs a call and requires that there are no findings.
Outputs run_kda_decode(const KdaDecodeCase& c, const ref::KdaDecode& inputs);
// Checks outputs against the layer in double. What the layer leaves keeps its bits.
void check_kda_decode(const KdaDecodeCase& c, const ref::KdaDecode& inputs, const Outputs& actual);

}  // namespace apitest
