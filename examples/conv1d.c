/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* y = silu(causal_conv1d(x, weight)) on LATHE_DEVICE (cuda, or sim), checked against a loop. */
#include <lathe.h>
#include <math.h>
#include <stdio.h>

#define TRY(call) \
  if ((call) != LATHE_OK) return fprintf(stderr, "%s: %s\n", #call, lathe_last_error()), 1

enum { B = 1, T = 100, D = 64, W = 4, X = 0, WEIGHT = 1, Y = 2 };

int main(void) {
  static float x[T][D], weight[D][W], y[T][D];
  for (int i = 0; i < T * D; ++i) x[i / D][i % D] = (float)(i * 37 % 101) / 50 - 1;
  for (int i = 0; i < D * W; ++i) weight[i / W][i % W] = (float)(i * 53 % 89) / 89 - 0.5f;

  /* A device and a cache; what is asked (-1 varies from run to run); the kernels for it. */
  lathe_context* context;
  lathe_problem* problem;
  lathe_plan* plan;
  TRY(lathe_context_create(&context, NULL));
  TRY(lathe_problem_create(&problem, "causal_conv1d"));
  TRY(lathe_problem_tensor(problem, "x", LATHE_F32, 3, (int64_t[]){-1, -1, D}));
  TRY(lathe_problem_tensor(problem, "weight", LATHE_F32, 2, (int64_t[]){D, W}));
  TRY(lathe_problem_tensor(problem, "y", LATHE_F32, 3, (int64_t[]){-1, -1, D}));
  TRY(lathe_problem_set_string(problem, "activation", "silu"));
  TRY(lathe_plan_create(&plan, context, problem));

  /* Device memory may come from anywhere, here from lathe's own helpers. Tensors are DLPack's. */
  const char* names[] = {"x", "weight", "y"};
  const size_t bytes[] = {sizeof x, sizeof weight, sizeof y};
  int64_t activation[] = {B, T, D}, taps[] = {D, W};
  DLTensor tensors[3];
  const DLTensor* slots[3];
  for (int i = X; i <= Y; ++i) {
    size_t slot;
    tensors[i] = (DLTensor){NULL, {kDLCUDA, 0}, 3, {kDLFloat, 32, 1}, activation, NULL, 0};
    TRY(lathe_malloc(context, &tensors[i].data, bytes[i]));
    TRY(lathe_plan_slot(plan, names[i], &slot));
    slots[slot] = &tensors[i];
  }
  tensors[WEIGHT].ndim = 2, tensors[WEIGHT].shape = taps;
  TRY(lathe_copy_to_device(context, tensors[X].data, x, sizeof x, NULL));
  TRY(lathe_copy_to_device(context, tensors[WEIGHT].data, weight, sizeof weight, NULL));
  TRY(lathe_plan_run(plan, slots, NULL, 0, NULL)); /* a forward needs no workspace */
  TRY(lathe_copy_to_host(context, y, tensors[Y].data, sizeof y, NULL));

  double worst = 0;
  for (int t = 0; t < T; ++t)
    for (int d = 0; d < D; ++d) {
      double z = 0;
      for (int i = W - 1 - t > 0 ? W - 1 - t : 0; i < W; ++i)
        z += (double)weight[d][i] * x[t - W + 1 + i][d];
      worst = fmax(worst, fabs(z / (1 + exp(-z)) - y[t][d]));
    }
  printf("causal_conv1d of %d tokens, %d channels: largest error %.1e\n", T, D, worst);
  for (int i = X; i <= Y; ++i) TRY(lathe_free(context, tensors[i].data));
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_context_destroy(context);
  return worst < 1e-5 ? 0 : 1;
}
