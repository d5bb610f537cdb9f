/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence split over the processes that torchrun, mpirun or srun started (multi_node/): each
 * rank runs y = silu(causal_conv1d(x, weight)) on its part, with the last tokens of the part
 * before, and checks it against a loop over the whole. */
#include <lathe.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call) \
  if ((call) != LATHE_OK) return fprintf(stderr, "%s: %s\n", #call, lathe_last_error()), 1

enum { T = 1000, D = 64, W = 4, TIMEOUT_MS = 60000 };

/* Which of the node's devices is this process's: what its launcher calls the local rank. */
static int local_rank(void) {
  const char* names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                         "SLURM_LOCALID"};
  for (int i = 0; i < 4; ++i)
    if (getenv(names[i])) return atoi(getenv(names[i]));
  return 0;
}

static float x_at(int64_t t, int d) { return (float)((t * D + d) * 37 % 101) / 50 - 1; }

int main(void) {
  static float x[T][D], weight[D][W], y[T][D];
  for (int i = 0; i < D * W; ++i) weight[i / W][i % W] = (float)(i * 53 % 89) / 89 - 0.5f;

  /* A device each, then all ranks at once: a group, and the part of the tokens that is mine. */
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  options.ordinal = local_rank();
  lathe_context* context;
  lathe_group* group;
  lathe_shard* shard;
  TRY(lathe_context_create(&context, &options));
  TRY(lathe_group_from_env(&group, context, TIMEOUT_MS));
  const int rank = lathe_group_rank(group), world = lathe_group_world(group);
  int64_t begin, end;
  TRY(lathe_shard_create(&shard, world, rank, T, NULL));
  TRY(lathe_shard_range(shard, &begin, &end));
  for (int64_t t = begin; t < end; ++t)
    for (int d = 0; d < D; ++d) x[t - begin][d] = x_at(t, d);

  lathe_problem* problem;
  lathe_plan* plan;
  TRY(lathe_problem_create(&problem, "causal_conv1d"));
  TRY(lathe_problem_tensor(problem, "x", LATHE_F32, 3, (int64_t[]){-1, -1, D}));
  TRY(lathe_problem_tensor(problem, "weight", LATHE_F32, 2, (int64_t[]){D, W}));
  TRY(lathe_problem_tensor(problem, "y", LATHE_F32, 3, (int64_t[]){-1, -1, D}));
  TRY(lathe_problem_set_string(problem, "activation", "silu"));
  TRY(lathe_problem_group(problem, group, 0));
  TRY(lathe_plan_create(&plan, context, problem));
  TRY(lathe_shard_prepare(shard, plan)); /* also finds ranks that are about to do something else */

  const size_t bytes = (size_t)(end - begin) * D * sizeof(float);
  int64_t activation[] = {1, end - begin, D}, taps[] = {D, W};
  const char* names[] = {"x", "weight", "y"};
  DLTensor tensors[3];
  const DLTensor* slots[3];
  for (int i = 0; i < 3; ++i) {
    size_t slot;
    tensors[i] =
        (DLTensor){NULL, {kDLCUDA, options.ordinal}, 3, {kDLFloat, 32, 1}, activation, NULL, 0};
    TRY(lathe_malloc(context, &tensors[i].data, i == 1 ? sizeof weight : bytes));
    TRY(lathe_plan_slot(plan, names[i], &slot));
    slots[slot] = &tensors[i];
  }
  tensors[1].ndim = 2, tensors[1].shape = taps;
  size_t workspace_bytes;
  void *workspace, *stream;
  TRY(lathe_plan_workspace(plan, slots, shard, &workspace_bytes));
  TRY(lathe_malloc(context, &workspace, workspace_bytes));
  TRY(lathe_stream_create(context, &stream));
  TRY(lathe_copy_to_device(context, tensors[0].data, x, bytes, stream));
  TRY(lathe_copy_to_device(context, tensors[1].data, weight, sizeof weight, stream));
  TRY(lathe_plan_run_sharded(plan, shard, slots, workspace, workspace_bytes, stream));
  TRY(lathe_copy_to_host(context, y, tensors[2].data, bytes, stream));
  TRY(lathe_group_error(group)); /* a rank that was lost is told here, and the stream went on */

  double worst = 0;
  for (int64_t t = begin; t < end; ++t)
    for (int d = 0; d < D; ++d) {
      double z = 0;
      for (int64_t i = W - 1 - t > 0 ? W - 1 - t : 0; i < W; ++i)
        z += (double)weight[d][i] * x_at(t - W + 1 + i, d);
      worst = fmax(worst, fabs(z / (1 + exp(-z)) - y[t - begin][d]));
    }
  printf("rank %d of %d: causal_conv1d of tokens %d to %d of %d: largest error %.1e\n", rank, world,
         (int)begin, (int)end, T, worst);
  for (int i = 0; i < 3; ++i) TRY(lathe_free(context, tensors[i].data));
  TRY(lathe_free(context, workspace));
  TRY(lathe_stream_destroy(context, stream));
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_shard_destroy(shard);
  lathe_group_destroy(group);
  lathe_context_destroy(context);
  return worst < 1e-5 ? 0 : 1;
}
