/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Kimi Delta Attention of 4 value heads on 2 key heads in bfloat16, with its norms, gate and
 * sigmoid in the kernels, checked token by token. */
#include <math.h>

#include "check.h"

enum { T = 150, H = 2, HV = 4, D = 64 };
enum { Q, K, V, G, BETA, A_LOG, DT_BIAS, O, FINAL_STATE, COUNT };

static uint16_t q[T][H][D], k[T][H][D], v[T][HV][D], g[T][HV][D], beta[T][HV], o[T][HV][D];
static float A_log[HV], dt_bias[HV][D], final_state[HV][D][D];

static double norm(const uint16_t* row) {
  double sum = 1e-6;
  for (int d = 0; d < D; ++d) sum += widen(row[d]) * (double)widen(row[d]);
  return 1 / sqrt(sum);
}

/* The largest error of o and of the state, by the definition. */
static double worst_of(int hv) {
  static double s[D][D];
  const int h = hv / (HV / H);
  double worst = 0;
  memset(s, 0, sizeof s);
  for (int t = 0; t < T; ++t) {
    const double q_norm = norm(q[t][h]), k_norm = norm(k[t][h]);
    const double step = 1 / (1 + exp(-widen(beta[t][hv])));
    for (int d = 0; d < D; ++d) {
      const double z = widen(g[t][hv][d]) + dt_bias[hv][d];
      const double decay = exp(-exp(A_log[hv]) * log1p(exp(z)));
      for (int e = 0; e < D; ++e) s[d][e] *= decay;
    }
    for (int e = 0; e < D; ++e) {
      double error = widen(v[t][hv][e]), out = 0;
      for (int d = 0; d < D; ++d) error -= s[d][e] * k_norm * widen(k[t][h][d]);
      for (int d = 0; d < D; ++d) s[d][e] += step * k_norm * widen(k[t][h][d]) * error;
      for (int d = 0; d < D; ++d) out += s[d][e] * q_norm * widen(q[t][h][d]) / sqrt(D);
      worst = fmax(worst, fabs(out - widen(o[t][hv][e])));
    }
  }
  for (int d = 0; d < D; ++d)
    for (int e = 0; e < D; ++e) worst = fmax(worst, fabs(s[d][e] - final_state[hv][d][e]));
  return worst;
}

int main(void) {
  static const char* const names[] = {"q",     "k",       "v", "g",          "beta",
                                      "A_log", "dt_bias", "o", "final_state"};
  void* host[] = {q, k, v, g, beta, A_log, dt_bias, o, final_state};
  const size_t bytes[] = {sizeof q,     sizeof k,       sizeof v, sizeof g,          sizeof beta,
                          sizeof A_log, sizeof dt_bias, sizeof o, sizeof final_state};
  for (int i = Q; i <= BETA; ++i) fill(host[i], bytes[i] / 2, i);
  for (int n = 0; n < HV * D; ++n) dt_bias[n / D][n % D] = (float)(n % 7) - 5;
  for (int n = 0; n < HV; ++n) A_log[n] = (float)n / 2;

  lathe_context* context;
  lathe_problem* problem;
  lathe_plan* plan;
  TRY(lathe_context_create(&context, NULL));
  TRY(lathe_problem_create(&problem, "kda"));
  int64_t shapes[COUNT][4] = {{1, T, H, D}, {1, T, H, D}, {1, T, HV, D}, {1, T, HV, D}, {1, T, HV},
                              {HV},         {HV * D},     {1, T, HV, D}, {1, HV, D, D}};
  const int ranks[] = {4, 4, 4, 4, 3, 1, 1, 4, 4};
  for (int i = Q; i < COUNT; ++i) { /* batch and tokens vary from call to call */
    int64_t declared[4];
    memcpy(declared, shapes[i], sizeof declared);
    if (ranks[i] > 1) declared[0] = -1;
    if (ranks[i] > 1 && i != FINAL_STATE) declared[1] = -1;
    const lathe_dtype type =
        i == A_LOG || i == DT_BIAS || i == FINAL_STATE ? LATHE_F32 : LATHE_BF16;
    TRY(lathe_problem_tensor(problem, names[i], type, ranks[i], declared));
  }
  TRY(lathe_problem_set_int(problem, "use_qk_l2norm_in_kernel", 1));
  TRY(lathe_problem_set_int(problem, "use_gate_in_kernel", 1));
  TRY(lathe_problem_set_int(problem, "use_beta_sigmoid_in_kernel", 1));
  TRY(lathe_plan_create(&plan, context, problem));

  DLTensor tensors[COUNT];
  const DLTensor* slots[COUNT];
  for (int i = Q; i < COUNT; ++i) {
    const int wide = i == A_LOG || i == DT_BIAS || i == FINAL_STATE;
    const DLDataType type = {wide ? kDLFloat : kDLBfloat, wide ? 32 : 16, 1};
    size_t slot;
    tensors[i] = (DLTensor){NULL, {kDLCUDA, 0}, ranks[i], type, shapes[i], NULL, 0};
    TRY(lathe_malloc(context, &tensors[i].data, bytes[i]));
    TRY(lathe_plan_slot(plan, names[i], &slot));
    slots[slot] = &tensors[i];
    if (i < O) TRY(lathe_copy_to_device(context, tensors[i].data, host[i], bytes[i], NULL));
  }
  size_t needed; /* nothing, unless there are so few heads that sequences are cut into segments */
  void* workspace;
  TRY(lathe_plan_workspace(plan, slots, NULL, &needed));
  TRY(lathe_malloc(context, &workspace, needed));
  TRY(lathe_plan_run(plan, slots, workspace, needed, NULL));
  for (int i = O; i < COUNT; ++i)
    TRY(lathe_copy_to_host(context, host[i], tensors[i].data, bytes[i], NULL));

  double worst = 0;
  for (int hv = 0; hv < HV; ++hv) worst = fmax(worst, worst_of(hv));
  printf("kda of %d tokens, %d value heads: largest error %.1e\n", T, HV, worst);
  TRY(lathe_free(context, workspace));
  for (int i = Q; i < COUNT; ++i) TRY(lathe_free(context, tensors[i].data));
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_context_destroy(context);
  return worst < 0.02 ? 0 : 1;
}
