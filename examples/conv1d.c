/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* y = silu(causal_conv1d(x, weight)) on LATHE_DEVICE (cuda, or sim), checked against a loop. */
#include <lathe.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call)                                             \
  do {                                                        \
    if ((call) != LATHE_OK) {                                 \
      fprintf(stderr, "%s: %s\n", #call, lathe_last_error()); \
      return 1;                                               \
    }                                                         \
  } while (0)

enum { B = 1, T = 100, D = 64, W = 4 };

int main(void) {
  static float x[T][D], weight[D][W], y[T][D];
  for (int i = 0; i < T * D; ++i) x[i / D][i % D] = (float)(i * 37 % 101) / 50 - 1;
  for (int i = 0; i < D * W; ++i) weight[i / W][i % W] = (float)(i * 53 % 89) / 89 - 0.5f;

  /* A device and a cache; what is asked (-1 varies from run to run); the kernels for it. */
  lathe_context* context;
  lathe_problem* problem;
  lathe_plan* plan;
  int64_t any[] = {-1, -1, D}, taps[] = {D, W};
  TRY(lathe_context_create(&context, NULL));
  TRY(lathe_problem_create(&problem, "causal_conv1d"));
  TRY(lathe_problem_tensor(problem, "x", LATHE_F32, 3, any));
  TRY(lathe_problem_tensor(problem, "weight", LATHE_F32, 2, taps));
  TRY(lathe_problem_tensor(problem, "y", LATHE_F32, 3, any));
  TRY(lathe_problem_set_string(problem, "activation", "silu"));
  TRY(lathe_plan_create(&plan, context, problem));

  /* Device memory from anywhere: here from lathe's own helpers. Tensors are DLPack's. */
  void *dx, *dweight, *dy;
  TRY(lathe_malloc(context, &dx, sizeof x));
  TRY(lathe_malloc(context, &dweight, sizeof weight));
  TRY(lathe_malloc(context, &dy, sizeof y));
  TRY(lathe_copy_to_device(context, dx, x, sizeof x, NULL));
  TRY(lathe_copy_to_device(context, dweight, weight, sizeof weight, NULL));
  int64_t shape[] = {B, T, D};
  DLTensor tensors[] = {{dx, {kDLCUDA, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0},
                        {dweight, {kDLCUDA, 0}, 2, {kDLFloat, 32, 1}, taps, NULL, 0},
                        {dy, {kDLCUDA, 0}, 3, {kDLFloat, 32, 1}, shape, NULL, 0}};
  const char* names[] = {"x", "weight", "y"};
  const DLTensor* slots[3];
  for (int i = 0; i < 3; ++i) {
    size_t slot;
    TRY(lathe_plan_slot(plan, names[i], &slot));
    slots[slot] = &tensors[i];
  }
  TRY(lathe_plan_run(plan, slots, NULL, 0, NULL)); /* a forward needs no workspace */
  TRY(lathe_copy_to_host(context, y, dy, sizeof y, NULL));

  double worst = 0;
  for (int t = 0; t < T; ++t)
    for (int d = 0; d < D; ++d) {
      double z = 0;
      for (int i = 0; i < W; ++i)
        if (t - W + 1 + i >= 0) z += (double)weight[d][i] * x[t - W + 1 + i][d];
      worst = fmax(worst, fabs(z / (1 + exp(-z)) - y[t][d]));
    }
  printf("causal_conv1d of %d tokens, %d channels: largest error %.1e\n", T, D, worst);
  void* memory[] = {dx, dweight, dy};
  for (int i = 0; i < 3; ++i) TRY(lathe_free(context, memory[i]));
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_context_destroy(context);
  return worst < 1e-5 ? 0 : 1;
}
