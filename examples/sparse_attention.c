/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse attention in the latent form: 16 heads read the 20 keys that their row lists. Values are
 * the keys themselves, rotary columns lie apart. Checked against a loop. */
#include <math.h>

#include "check.h"

enum { T = 40, L = 96, H = 16, D = 64, R = 16, TOPK = 20 };
enum { Q, Q_ROPE, K, K_ROPE, INDICES, OUT, COUNT };
#define SCALE 0.1

static uint16_t q[T][H][D], q_rope[T][H][R], k[L][1][D], k_rope[L][1][R], out[T][H][D];
static int32_t indices[T][1][TOPK];

/* Column d of one row of out, as the definition has it. */
static double expected(int i, int h, int d) {
  double sum = 0, weighted = 0;
  for (int e = 0; e < TOPK; ++e) {
    const int j = indices[i][0][e];
    double score = 0;
    if (j < 0 || j > L - T + i) continue; /* the last row is at the last key */
    for (int c = 0; c < D; ++c) score += (double)widen(q[i][h][c]) * widen(k[j][0][c]);
    for (int c = 0; c < R; ++c) score += (double)widen(q_rope[i][h][c]) * widen(k_rope[j][0][c]);
    sum += exp(SCALE * score);
    weighted += exp(SCALE * score) * widen(k[j][0][d]);
  }
  return weighted / sum;
}

int main(void) {
  const char* names[] = {"q", "q_rope", "k", "k_rope", "indices", "out"};
  void* host[] = {q, q_rope, k, k_rope, indices, out};
  int64_t shapes[COUNT][3] = {{T, H, D}, {T, H, R}, {L, 1, D}, {L, 1, R}, {T, 1, TOPK}, {T, H, D}};
  for (int i = Q; i <= K_ROPE; ++i)
    fill(host[i], (size_t)(shapes[i][0] * shapes[i][1] * shapes[i][2]), i);
  for (int i = 0; i < T; ++i)
    for (int e = 0; e < TOPK; ++e) indices[i][0][e] = e % 7 == 6 ? -1 : (i * 13 + e * 29) % L;

  lathe_context* context;
  lathe_problem* problem;
  lathe_plan* plan;
  TRY(lathe_context_create(&context, NULL));
  TRY(lathe_problem_create(&problem, "sparse_flash_attention"));
  for (int i = Q; i < COUNT; ++i) { /* rows, keys and entries vary from call to call */
    const int64_t last = i == INDICES ? -1 : shapes[i][2];
    TRY(lathe_problem_tensor(problem, names[i], i == INDICES ? LATHE_I32 : LATHE_BF16, 3,
                             (int64_t[]){-1, shapes[i][1], last}));
  }
  TRY(lathe_problem_set_double(problem, "scale", SCALE));
  TRY(lathe_problem_set_int(problem, "sparse_mode", 3)); /* no key behind the row's position */
  TRY(lathe_problem_set_int(problem, "num_splits", 1));  /* one launch, no workspace */
  TRY(lathe_plan_create(&plan, context, problem));

  DLTensor tensors[COUNT];
  const DLTensor* slots[COUNT];
  for (int i = Q; i < COUNT; ++i) {
    const DLDataType type = {i == INDICES ? kDLInt : kDLBfloat, i == INDICES ? 32 : 16, 1};
    const size_t bytes = (size_t)(shapes[i][0] * shapes[i][1] * shapes[i][2]) * type.bits / 8;
    size_t slot;
    tensors[i] = (DLTensor){NULL, {kDLCUDA, 0}, 3, type, shapes[i], NULL, 0};
    TRY(lathe_malloc(context, &tensors[i].data, bytes));
    TRY(lathe_plan_slot(plan, names[i], &slot));
    slots[slot] = &tensors[i];
    if (i != OUT) TRY(lathe_copy_to_device(context, tensors[i].data, host[i], bytes, NULL));
  }
  TRY(lathe_plan_run(plan, slots, NULL, 0, NULL));
  TRY(lathe_copy_to_host(context, out, tensors[OUT].data, sizeof out, NULL));

  double worst = 0;
  for (int i = 0; i < T; i += 3)
    for (int h = 0; h < H; h += 5)
      for (int d = 0; d < D; d += 9)
        worst = fmax(worst, fabs(expected(i, h, d) - widen(out[i][h][d])));
  printf("sparse_flash_attention of %d rows, %d keys each: largest error %.1e\n", T, TOPK, worst);
  for (int i = Q; i < COUNT; ++i) TRY(lathe_free(context, tensors[i].data));
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_context_destroy(context);
  return worst < 0.01 ? 0 : 1;
}
