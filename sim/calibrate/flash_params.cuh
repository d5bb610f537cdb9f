// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The drivers of FlashAttention-2 and -3 share this file: both describe a problem in structures
// with fields of the same names.
#pragma once

#include <cmath>

#include "timed.cuh"

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "flash: %s\n", what);
  std::exit(1);
}

inline void* device_memory(size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) fail("no memory");
  return memory;
}

template <class Action, class... Fields>
void each(Action action, Fields&... fields) {
  (action(fields), ...);
}

// A Problem is dense attention of 16-bit floats: tensors are [batch, length, heads, width].
struct Problem {
  int batch, length, heads, width;
  bool causal;
  int rows;  // the backward's tile: its float32 results are padded to whole ones
};

template <class Params>
void describe(Params* p, const Problem& problem) {
  const int64_t row = int64_t{problem.heads} * problem.width, all = row * problem.length;
  const size_t bytes = 2 * all * problem.batch;
  p->b = problem.batch, p->h = p->h_k = problem.heads;
  p->d = p->d_rounded = problem.width;
  p->seqlen_q = p->seqlen_k = problem.length;
  p->seqlen_q_rounded = (problem.length + problem.rows - 1) / problem.rows * problem.rows;
  p->seqlen_k_rounded = (problem.length + 127) / 128 * 128;
  each([&](auto& tensor) { tensor = device_memory(bytes); }, p->q_ptr, p->k_ptr, p->v_ptr, p->o_ptr,
       p->do_ptr, p->dq_ptr, p->dk_ptr, p->dv_ptr);
  each([&](int64_t& stride) { stride = all; }, p->q_batch_stride, p->k_batch_stride,
       p->v_batch_stride, p->o_batch_stride, p->do_batch_stride, p->dq_batch_stride,
       p->dk_batch_stride, p->dv_batch_stride);
  each([&](int64_t& stride) { stride = row; }, p->q_row_stride, p->k_row_stride, p->v_row_stride,
       p->o_row_stride, p->do_row_stride, p->dq_row_stride, p->dk_row_stride, p->dv_row_stride);
  each([&](int64_t& stride) { stride = problem.width; }, p->q_head_stride, p->k_head_stride,
       p->v_head_stride, p->o_head_stride, p->do_head_stride, p->dq_head_stride, p->dk_head_stride,
       p->dv_head_stride);
  const size_t rows = size_t(problem.batch) * problem.heads * p->seqlen_q_rounded;
  p->softmax_lse_ptr = device_memory(sizeof(float) * rows);
  p->dsoftmax_sum = device_memory(sizeof(float) * rows);
  p->dq_accum_ptr = device_memory(sizeof(float) * rows * problem.width);
  p->scale_softmax = 1 / std::sqrt(float(problem.width));
  p->p_dropout = p->rp_dropout = 1;
  p->p_dropout_in_uint8_t = 255;
  p->is_causal = problem.causal;
}

// The data of a timed run. Scores of normal numbers are normal too, and so are the lse that a
// backward is given: about what a forward would have found.
template <class Element, class Params>
void fill(const Params& p) {
  const size_t count = size_t(p.b) * p.seqlen_q * p.h * p.d;
  void* const tensors[] = {p.q_ptr, p.k_ptr, p.v_ptr, p.o_ptr, p.do_ptr};
  uint32_t seed = 0;
  for (void* tensor : tensors) fill_normally<Element>(tensor, count, ++seed);
  const size_t rows = size_t(p.b) * p.h * p.seqlen_q_rounded;
  const float lse = std::log(float(p.seqlen_k)) + 0.5f;
  if (timed_runs() > 0) {
    equal_numbers<<<(rows + 255) / 256, 256>>>(static_cast<float*>(p.softmax_lse_ptr), rows, lse);
  }
}
