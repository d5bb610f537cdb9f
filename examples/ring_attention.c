/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention whose tokens lie on 4 ranks, head-tail, as threads of one process (of the
 * simulator, or of one GPU with its NCCL), checked against a loop over all tokens. */
#include <pthread.h>

#include "causal_attention.h"

enum { WORLD = 4, S = 203, H = 4, HK = 2, D = 64, Q = 0, K, V, OUT, LSE, COUNT };

/* Of the whole axis, and the same in the order of one rank's tokens. */
static uint16_t q[S][H][D], k[S][HK][D], v[S][HK][D], out[S][H][D];
static uint16_t local[WORLD][4][S * H * D];
static lathe_context* context;
static char id[LATHE_UNIQUE_ID_BYTES];

static int run_rank(int rank) {
  const char* names[] = {"q", "k", "v", "out", "lse"};
  uint16_t* whole[] = {&q[0][0][0], &k[0][0][0], &v[0][0][0], &out[0][0][0]};
  const int64_t heads[] = {H, HK, HK, H};

  /* The ranks meet; which tokens this one holds; what is asked, over the group. */
  lathe_group* group;
  lathe_shard* shard;
  lathe_problem* problem;
  lathe_plan* plan;
  TRY(lathe_group_create(&group, context, id, WORLD, rank, 0));
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  options.world = WORLD;
  options.rank = rank;
  options.length = S;
  options.balance = LATHE_BALANCE_HEAD_TAIL;
  TRY(lathe_shard_create_with(&shard, &options));
  TRY(lathe_problem_create(&problem, "flash_attention"));
  for (int i = Q; i <= OUT; ++i)
    TRY(lathe_problem_tensor(problem, names[i], LATHE_BF16, 4, (int64_t[]){-1, -1, heads[i], D}));
  TRY(lathe_problem_tensor(problem, "lse", LATHE_F32, 3, (int64_t[]){-1, H, -1}));
  TRY(lathe_problem_set_int(problem, "causal", 1));
  TRY(lathe_problem_group(problem, group, 0)); /* a ring; LATHE_ALLGATHER gathers keys and values */
  TRY(lathe_plan_create(&plan, context, problem));
  TRY(lathe_shard_prepare(shard, plan)); /* its schedule and tables, once */

  /* Tensors hold the rank's own tokens, interval after interval. */
  const int64_t* intervals;
  size_t count;
  int64_t tokens = 0;
  TRY(lathe_shard_intervals(shard, LATHE_QUERIES, &intervals, &count));
  for (size_t n = 0; n < count; ++n) {
    const int64_t length = intervals[2 * n + 1] - intervals[2 * n];
    for (int i = Q; i <= V; ++i)
      memcpy(local[rank][i] + tokens * heads[i] * D, whole[i] + intervals[2 * n] * heads[i] * D,
             sizeof(uint16_t) * length * heads[i] * D);
    tokens += length;
  }
  int64_t shapes[COUNT][4] = {
      {1, tokens, H, D}, {1, tokens, HK, D}, {1, tokens, HK, D}, {1, tokens, H, D}, {1, H, tokens}};
  DLTensor tensors[COUNT];
  const DLTensor* slots[COUNT];
  for (int i = Q; i < COUNT; ++i) {
    const size_t bytes =
        i == LSE ? sizeof(float) * H * tokens : sizeof(uint16_t) * tokens * heads[i] * D;
    const DLDataType type = {i == LSE ? kDLFloat : kDLBfloat, i == LSE ? 32 : 16, 1};
    size_t slot;
    tensors[i] = (DLTensor){NULL, {kDLCUDA, 0}, i == LSE ? 3 : 4, type, shapes[i], NULL, 0};
    TRY(lathe_malloc(context, &tensors[i].data, bytes));
    TRY(lathe_plan_slot(plan, names[i], &slot));
    slots[slot] = &tensors[i];
    if (i <= V) TRY(lathe_copy_to_device(context, tensors[i].data, local[rank][i], bytes, NULL));
  }

  /* Any number of times, on any stream: all ranks make the same calls in the same order. */
  void *workspace, *stream;
  size_t bytes;
  TRY(lathe_plan_workspace(plan, slots, shard, &bytes));
  TRY(lathe_malloc(context, &workspace, bytes));
  TRY(lathe_stream_create(context, &stream));
  TRY(lathe_plan_run_sharded(plan, shard, slots, workspace, bytes, stream));
  TRY(lathe_stream_synchronize(context, stream));
  TRY(lathe_group_error(group));

  TRY(lathe_copy_to_host(context, local[rank][OUT], tensors[OUT].data,
                         sizeof(uint16_t) * tokens * H * D, NULL));
  for (size_t n = 0, from = 0; n < count; ++n) {
    const size_t rows = (size_t)(intervals[2 * n + 1] - intervals[2 * n]);
    memcpy(out[intervals[2 * n]], local[rank][OUT] + from * H * D, sizeof out[0] * rows);
    from += rows;
  }
  for (int i = Q; i < COUNT; ++i) TRY(lathe_free(context, tensors[i].data));
  TRY(lathe_free(context, workspace));
  TRY(lathe_stream_destroy(context, stream));
  lathe_shard_destroy(shard);
  lathe_plan_destroy(plan);
  lathe_problem_destroy(problem);
  lathe_group_destroy(group);
  return 0;
}

static void* thread(void* rank) { return run_rank((int)(intptr_t)rank - 1) ? rank : NULL; }

int main(void) {
  fill(q, sizeof q / 2, Q);
  fill(k, sizeof k / 2, K);
  fill(v, sizeof v / 2, V);
  TRY(lathe_context_create(&context, NULL));
  TRY(lathe_unique_id(context, id)); /* between processes it travels by the caller's own means */
  pthread_t threads[WORLD];
  for (intptr_t rank = 0; rank < WORLD; ++rank)
    if (pthread_create(&threads[rank], NULL, thread, (void*)(rank + 1)) != 0) return 1;
  int failed = 0;
  for (int rank = 0; rank < WORLD; ++rank) {
    void* result = NULL;
    pthread_join(threads[rank], &result);
    failed |= result != NULL;
  }
  if (failed) return 1;
  const struct attention attention = {S, H, HK, D, q[0][0], k[0][0], v[0][0], out[0][0]};
  const double worst = largest_error(&attention);
  printf("flash_attention of %d tokens over %d ranks: largest error %.1e\n", S, WORLD, worst);
  lathe_context_destroy(context);
  return worst < 0.01 ? 0 : 1;
}
