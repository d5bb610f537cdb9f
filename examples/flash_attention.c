/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention of 4 query heads on 2 key heads in bfloat16, checked against a loop. */
#include "causal_attention.h"

enum { S = 200, H = 4, HK = 2, D = 64, Q = 0, K, V, OUT, LSE, COUNT };

static uint16_t q[S][H][D], k[S][HK][D], v[S][HK][D], out[S][H][D];

int main(void) {
  const char* names[] = {"q", "k", "v", "out", "lse"};
  uint16_t* host[] = {&q[0][0][0], &k[0][0][0], &v[0][0][0], &out[0][0][0]};
  const int64_t heads[] = {H, HK, HK, H};
  for (int i = Q; i <= V; ++i) fill(host[i], S * (size_t)heads[i] * D, i);

  lathe_context* context;
  lathe_problem* problem;
  lathe_plan* plan;
  TRY(lathe_context_create(&context, NULL));
  TRY(lathe_problem_create(&problem, "flash_attention"));
  for (int i = Q; i <= OUT; ++i) /* batch and tokens vary from call to call */
    TRY(lathe_problem_tensor(problem, names[i], LATHE_BF16, 4, (int64_t[]){-1, -1, heads[i], D}));
  TRY(lathe_problem_tensor(problem, "lse", LATHE_F32, 3, (int64_t[]){-1, H, -1}));
  TRY(lathe_problem_set_int(problem, "causal", 1));
  TRY(lathe_plan_create(&plan, context, problem));

  int64_t shapes[COUNT][4] = {{1, S, H, D}, {1, S, HK, D}, {1, S, HK, D}, {1, S, H, D}, {1, H, S}};
  DLTensor tensors[COUNT];
  const DLTensor* slots[COUNT];
  for (int i = Q; i < COUNT; ++i) {
    const size_t bytes = i == LSE ? sizeof(float) * H * S : sizeof(uint16_t) * S * heads[i] * D;
    const DLDataType type = {i == LSE ? kDLFloat : kDLBfloat, i == LSE ? 32 : 16, 1};
    size_t slot;
    tensors[i] = (DLTensor){NULL, {kDLCUDA, 0}, i == LSE ? 3 : 4, type, shapes[i], NULL, 0};
    TRY(lathe_malloc(context, &tensors[i].data, bytes));
    TRY(lathe_plan_slot(plan, names[i], &slot));
    slots[slot] = &tensors[i];
    if (i <= V) TRY(lathe_copy_to_device(context, tensors[i].data, host[i], bytes, NULL));
  }
  TRY(lathe_plan_run(plan, slots, NULL, 0, NULL));
  TRY(lathe_copy_to_host(context, out, tensors[OUT].data, sizeof out, NULL));

  const struct attention attention = {S, H, HK, D, q[0][0], k[0][0], v[0][0], out[0][0]};
  const double worst = largest_error(&attention);
  printf("flash_attention of %d tokens, %d heads: largest error %.1e\n", S, H, worst);
  for (int i = Q; i < COUNT; ++i) TRY(lathe_free(context, tensors[i].data));
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_context_destroy(context);
  return worst < 0.01 ? 0 : 1;
}
