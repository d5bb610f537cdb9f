/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of server.c: what lies on the device, a plan for each operator, and the way of a step's
 * tokens to the device and back. */
#pragma once

#include <stddef.h>

#include "check.h"
#include "server_model.h"

/* clang-format off */
enum { SEATS = 3, SPEC = 3, CACHED = 2, PAGE = 16, TABLE = 3, PAGES = 16, ROWS = 32 };
enum { COLUMNS = TAPS - 1 + SPEC - 1, REQUESTS = 6, WANTED = 12, WIDE = ROWS * H * KEYS,
       OPERANDS = 14 };

/* What lies on the device. A seat has a slot of the convolution and SPEC of KDA, one for the state
 * behind each token of a step; entries of the prefix cache have one of each behind those. */
enum { X, FILTER, CONVOLVED, Q, K, V, MIXED, QUERIES, LATENTS, ATTENDED, CONV_POOL, CACHE, G, STEP,
       LSE, KDA_POOL, OFFSETS, CONV_SLOT, CONV_FROM, KDA_SLOT, KDA_FROM, ACCEPTED, LENGTHS, TABLES,
       KEPT, KEPT_TOKEN, KEPT_CONV, KEPT_KDA, TENSORS };
enum { CONV_SLOTS = SEATS + CACHED, KDA_SLOTS = SEATS * SPEC + CACHED };
static void* device[TENSORS];
static int32_t number[TENSORS][SEATS * TABLE];
static lathe_context* context;

/* A tensor of a call. N, M and T stand for the sequences of a step, one more, and its rows. */
enum { N = -1, M = -2, T = -3 };
struct operand { const char* name; int tensor; int64_t shape[4]; uint64_t first; };
struct call {
  const char *op, *option[2], *value[2]; struct operand of[OPERANDS]; lathe_plan* plan;
};
enum { PREFILL_CONV, PREFILL_KDA, DECODE_CONV, DECODE_KDA, ATTEND, CALLS };
static struct call calls[CALLS] = {
    {"causal_conv1d", {"activation", "split"}, {"silu", "32,32,32"},
     {{"x", X, {1, T, CHANNELS}, 0}, {"weight", FILTER, {CHANNELS, TAPS}, 0},
      {"state_pool", CONV_POOL, {CONV_SLOTS, CHANNELS, TAPS - 1}, 0},
      {"cu_seqlens", OFFSETS, {M}, 0}, {"state_indices", CONV_SLOT, {N}, 0},
      {"source_indices", CONV_FROM, {N}, 0},
      {"cu_checkpoints", KEPT, {M}, 0}, {"checkpoint_tokens", KEPT_TOKEN, {1}, 0},
      {"checkpoint_slots", KEPT_CONV, {1}, 0}, {"y_0", Q, {1, T, H * D}, 0},
      {"y_1", K, {1, T, H * D}, 0}, {"y_2", V, {1, T, H * D}, 0}}, NULL},
    {"kda", {"use_qk_l2norm_in_kernel", NULL}, {"1", NULL},
     {{"q", Q, {1, T, H, D}, 0}, {"k", K, {1, T, H, D}, 0}, {"v", V, {1, T, H, D}, 0},
      {"g", G, {1, T, H, D}, 0}, {"beta", STEP, {1, T, H}, 0}, {"cu_seqlens", OFFSETS, {M}, 0},
      {"state_pool", KDA_POOL, {KDA_SLOTS, H, D, D}, 0}, {"state_indices", KDA_SLOT, {N}, 0},
      {"source_indices", KDA_FROM, {N}, 0}, {"cu_checkpoints", KEPT, {M}, 0},
      {"checkpoint_tokens", KEPT_TOKEN, {1}, 0}, {"checkpoint_slots", KEPT_KDA, {1}, 0},
      {"o", MIXED, {1, T, H, D}, 0}}, NULL},
    {"causal_conv1d_update", {"activation", NULL}, {"silu", NULL},
     {{"x", X, {T, CHANNELS}, 0}, {"weight", FILTER, {CHANNELS, TAPS}, 0},
      {"state", CONV_POOL, {CONV_SLOTS, CHANNELS, COLUMNS}, 0}, {"cu_seqlens", OFFSETS, {M}, 0},
      {"state_indices", CONV_SLOT, {N}, 0}, {"num_accepted_tokens", ACCEPTED, {N}, 0},
      {"y", CONVOLVED, {T, CHANNELS}, 0}}, NULL},
    {"kda_recurrent", {"use_qk_l2norm_in_kernel", NULL}, {"1", NULL}, /* over columns of y */
     {{"q", CONVOLVED, {1, T, H, D}, 0}, {"k", CONVOLVED, {1, T, H, D}, 2 * H * D},
      {"v", CONVOLVED, {1, T, H, D}, 4 * H * D}, {"g", G, {1, T, H, D}, 0},
      {"beta", STEP, {1, T, H}, 0}, {"cu_seqlens", OFFSETS, {M}, 0},
      {"state_pool", KDA_POOL, {KDA_SLOTS, H, D, D}, 0}, {"state_indices", KDA_SLOT, {N, SPEC}, 0},
      {"num_accepted_tokens", ACCEPTED, {N}, 0}, {"o", MIXED, {1, T, H, D}, 0}}, NULL},
    {"flash_attention_decode", {"causal", NULL}, {"1", NULL},
     {{"q", QUERIES, {T, H, KEYS}, 0}, {"k_cache", CACHE, {PAGES, PAGE, 1, KEYS}, 0},
      {"block_table", TABLES, {N, TABLE}, 0}, {"cache_seqlens", LENGTHS, {N}, 0},
      {"k_new", LATENTS, {T, 1, KEYS}, 0}, {"cu_seqlens_q", OFFSETS, {M}, 0},
      {"out", ATTENDED, {T, H, VALUES}, 0}, {"lse", LSE, {H, T}, 0}}, NULL}};
/* clang-format on */

static lathe_dtype type_of(int tensor) {
  return tensor < G ? LATHE_BF16 : tensor < OFFSETS ? LATHE_F32 : LATHE_I32;
}
static int rank_of(const struct operand* each) {
  int rank = 0;
  while (rank < 4 && each->shape[rank] != 0) ++rank;
  return rank;
}
/* Kernels are made before the first request: extents below 0 vary from step to step. */
static int prepare(struct call* call) {
  lathe_problem* problem;
  TRY(lathe_problem_create(&problem, call->op));
  for (const struct operand* each = call->of; each->name; ++each) {
    int64_t shape[4];
    for (int d = 0; d < 4; ++d) shape[d] = each->shape[d] < 0 ? -1 : each->shape[d];
    TRY(lathe_problem_tensor(problem, each->name, type_of(each->tensor), rank_of(each), shape));
  }
  for (int i = 0; i < 2 && call->option[i]; ++i)
    TRY(lathe_problem_set_string(problem, call->option[i], call->value[i]));
  TRY(lathe_plan_create(&call->plan, context, problem));
  lathe_problem_destroy(problem);
  return 0;
}
static int run(const struct call* call, int sequences, int rows) {
  static void* workspace;
  static size_t room;
  int64_t shapes[OPERANDS][4], pool[] = {CHANNELS * COLUMNS, COLUMNS, 1};
  int64_t view[] = {(int64_t)rows * CHANNELS, CHANNELS, D, 1};
  DLTensor tensors[OPERANDS];
  const DLTensor* slots[OPERANDS];
  size_t slot, bytes;
  for (int i = 0; call->of[i].name; ++i) {
    const struct operand* each = &call->of[i];
    const lathe_dtype type = type_of(each->tensor);
    for (int d = 0; d < 4; ++d) {
      const int64_t e = each->shape[d];
      shapes[i][d] = e == N ? sequences : e == M ? sequences + 1 : e == T ? rows : e;
    }
    const DLDataType element = {type == LATHE_BF16  ? kDLBfloat
                                : type == LATHE_I32 ? kDLInt
                                                    : kDLFloat,
                                type == LATHE_BF16 ? 16 : 32, 1};
    int64_t* const strides = each->tensor == CONV_POOL                         ? pool
                             : each->tensor == CONVOLVED && rank_of(each) == 4 ? view
                                                                               : NULL;
    tensors[i] =
        (DLTensor){device[each->tensor], {kDLCUDA, 0}, rank_of(each), element, shapes[i], strides,
                   each->first};
    TRY(lathe_plan_slot(call->plan, each->name, &slot));
    slots[slot] = &tensors[i];
  }
  TRY(lathe_plan_workspace(call->plan, slots, NULL, &bytes));
  if (bytes > room) {
    TRY(lathe_free(context, workspace));
    TRY(lathe_malloc(context, &workspace, room = bytes));
  }
  TRY(lathe_plan_run(call->plan, slots, workspace, bytes, NULL));
  return 0;
}

/* A field of the step's tokens goes to the device, in the tensor's type, or comes back. */
static struct token step[ROWS];
static int move(int tensor, size_t field, size_t bytes, int rows, int back) {
  static uint16_t half[WIDE];
  static float whole[WIDE];
  const int narrowed = type_of(tensor) == LATHE_BF16, width = (int)(bytes / sizeof(double));
  void* const host = narrowed ? (void*)half : (void*)whole;
  bytes = (size_t)(rows * width) * (narrowed ? sizeof *half : sizeof *whole);
  if (back) TRY(lathe_copy_to_host(context, host, device[tensor], bytes, NULL));
  for (int i = 0; i < rows * width; ++i) {
    double* value = (double*)(void*)((char*)&step[i / width] + field) + i % width;
    if (back) *value = narrowed ? widen(half[i]) : whole[i];
    whole[i] = (float)*value, half[i] = nearest(whole[i]);
  }
  if (!back) TRY(lathe_copy_to_device(context, device[tensor], host, bytes, NULL));
  return 0;
}
#define UP(tensor, field) move(tensor, offsetof(struct token, field), sizeof step->field, rows, 0)
#define DOWN(tensor, field) move(tensor, offsetof(struct token, field), sizeof step->field, rows, 1)
