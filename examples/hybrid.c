/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Two layers of a hybrid model and their gradients over 4 ranks: a convolution with Kimi Delta
 * Attention, then attention whose heads share one latent key and value. All six plans run over one
 * layout, with one shard; no token moves between them. Checked against the same calls on one rank.
 */
#include <math.h>
#include <pthread.h>

#include "check.h"

enum { WORLD = 4, T = 301, H = 2, D = 32, W = 4, CHANNELS = (3 * H + 2) * D, DOCUMENTS = 3 };
static const int32_t offsets[DOCUMENTS + 1] = {0, 120, 121, T};
static lathe_context* context;
static char id[LATHE_UNIQUE_ID_BYTES];

/* What a rank has of the layers: rows of its tokens, or what has no tokens. Layer 1 writes y, which
 * holds q, k and v of KDA and the latent of layer 2 side by side; their gradients meet in dy. */
enum { X, Y, G, BETA, O, OUT, DOUT, D_O, DG, DBETA, DY, DX, LSE, WEIGHT, DWEIGHT, CU, BUFFERS };
static const int columns[] = {CHANNELS, CHANNELS, H* D,     H, H* D,     H* D,     H* D, H* D, H* D,
                              H,        CHANNELS, CHANNELS, H, CHANNELS, CHANNELS, 0};
static int is_wide(int buffer) { return buffer == G || buffer == DG || buffer == LSE; }
static int has_tokens(int buffer) { return buffer < WEIGHT; }

/* A tensor of an operator: `heads` heads of `width` columns of a buffer, from column `first` on. */
struct tensor {
  const char* name;
  int buffer, first, heads, width;
};
struct call {
  const char *op, *options[4];
  struct tensor tensors[20];
};
enum { Q = 0, K = H * D, V = 2 * H * D, LATENT_K = 3 * H * D, LATENT_V = LATENT_K + D };
#define GATES \
  {"g", G, 0, H, D}, { "beta", BETA, 0, H, 1 }
#define KDA_INPUTS {"q", Y, Q, H, D}, {"k", Y, K, H, D}, {"v", Y, V, H, D}, GATES
#define LATENT \
  {"k", Y, LATENT_K, 1, D}, { "v", Y, LATENT_V, 1, D }
static const struct call calls[] = {
    {"causal_conv1d",
     {"activation", "silu"},
     {{"x", X, 0, CHANNELS, 0}, {"weight", WEIGHT, 0, CHANNELS, W}, {"y", Y, 0, CHANNELS, 0}}},
    {"kda",
     {"use_qk_l2norm_in_kernel", "1", "use_beta_sigmoid_in_kernel", "1"},
     {KDA_INPUTS, {"o", O, 0, H, D}}},
    {"flash_attention",
     {"causal", "1"},
     {{"q", O, 0, H, D}, LATENT, {"out", OUT, 0, H, D}, {"lse", LSE, 0, H, 1}}},
    {"flash_attention",
     {"causal", "1", "saved_forward", "1"},
     {{"q", O, 0, H, D},
      LATENT,
      {"out", OUT, 0, H, D},
      {"lse", LSE, 0, H, 1},
      {"dout", DOUT, 0, H, D},
      {"dq", D_O, 0, H, D},
      {"dk", DY, LATENT_K, 1, D},
      {"dv", DY, LATENT_V, 1, D}}},
    {"kda",
     {"use_qk_l2norm_in_kernel", "1", "use_beta_sigmoid_in_kernel", "1"},
     {KDA_INPUTS,
      {"do", D_O, 0, H, D},
      {"dq", DY, Q, H, D},
      {"dk", DY, K, H, D},
      {"dv", DY, V, H, D},
      {"dg", DG, 0, H, D},
      {"dbeta", DBETA, 0, H, 1}}},
    {"causal_conv1d",
     {"activation", "silu"},
     {{"x", X, 0, CHANNELS, 0},
      {"weight", WEIGHT, 0, CHANNELS, W},
      {"dy", DY, 0, CHANNELS, 0},
      {"dx", DX, 0, CHANNELS, 0},
      {"dweight", DWEIGHT, 0, CHANNELS, W}}},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* The layers of one rank, or of one rank alone if there is no group. */
struct rank {
  lathe_group* group;
  lathe_shard* shard;
  int64_t tokens;
  void* buffers[BUFFERS];
  void* workspaces[CALLS];
  lathe_plan* plans[CALLS];
  void* stream;
};

static size_t bytes_of(int buffer, int64_t tokens) {
  if (buffer == CU) return sizeof offsets;
  const int64_t rows = has_tokens(buffer) ? tokens : W;
  return (size_t)rows * columns[buffer] * (is_wide(buffer) ? 4 : 2);
}

/* Describes a tensor of a call where it lies: packed tokens, without a batch in attention. */
static void describe(const struct rank* rank, const struct call* call, const struct tensor* tensor,
                     int64_t shape[4], int64_t strides[4], DLTensor* out) {
  const int wide = is_wide(tensor->buffer), buffer = tensor->buffer;
  const int64_t row = columns[buffer];
  const DLDataType type = {wide ? kDLFloat : kDLBfloat, wide ? 32 : 16, 1};
  *out = (DLTensor){rank->buffers[buffer], {kDLCUDA, 0}, 0, type, shape, NULL, 0};
  if (!has_tokens(buffer)) { /* [CHANNELS, W] */
    shape[out->ndim++] = tensor->heads, shape[out->ndim++] = tensor->width;
    return;
  }
  if (buffer == LSE) { /* [H, tokens] */
    shape[out->ndim++] = H, shape[out->ndim++] = rank->tokens;
    return;
  }
  out->strides = strides;
  out->byte_offset = (uint64_t)tensor->first * (wide ? 4 : 2);
  const int64_t extents[] = {1, rank->tokens, tensor->heads, tensor->width};
  const int64_t steps[] = {rank->tokens * row, row, tensor->width > 1 ? tensor->width : 1, 1};
  const int last = tensor->width > 1 ? 4 : 3; /* beta has no columns, and channels no heads */
  for (int i = strcmp(call->op, "flash_attention") == 0; i < last; ++i, ++out->ndim)
    shape[out->ndim] = extents[i], strides[out->ndim] = steps[i];
}

static int count_of(const struct call* call) {
  int count = 0;
  while (call->tensors[count].name) ++count;
  return count;
}

/* Makes the plan of a call, and enqueues it. */
static int enqueue(struct rank* rank, int number) {
  const struct call* call = &calls[number];
  lathe_problem* problem;
  TRY(lathe_problem_create(&problem, call->op));
  for (int i = 0; i < 4 && call->options[i]; i += 2)
    TRY(lathe_problem_set_string(problem, call->options[i], call->options[i + 1]));
  DLTensor tensors[22];
  int64_t shapes[22][4], strides[22][4];
  const char* names[22];
  int count = count_of(call);
  for (int i = 0; i < count; ++i) {
    names[i] = call->tensors[i].name;
    describe(rank, call, &call->tensors[i], shapes[i], strides[i], &tensors[i]);
    int64_t declared[4]; /* tokens vary from rank to rank */
    for (int d = 0; d < tensors[i].ndim; ++d)
      declared[d] =
          has_tokens(call->tensors[i].buffer) && shapes[i][d] == rank->tokens ? -1 : shapes[i][d];
    TRY(lathe_problem_tensor(problem, names[i],
                             is_wide(call->tensors[i].buffer) ? LATHE_F32 : LATHE_BF16,
                             tensors[i].ndim, declared));
  }
  const int attends = strcmp(call->op, "flash_attention") == 0;
  for (int i = 0; i <= attends; ++i, ++count) { /* attention has offsets of queries and of keys */
    names[count] = !attends ? "cu_seqlens" : i == 0 ? "cu_seqlens_q" : "cu_seqlens_k";
    shapes[count][0] = DOCUMENTS + 1;
    tensors[count] =
        (DLTensor){rank->buffers[CU], {kDLCUDA, 0}, 1, {kDLInt, 32, 1}, shapes[count], NULL, 0};
    TRY(lathe_problem_tensor(problem, names[count], LATHE_I32, 1, shapes[count]));
  }
  if (rank->group) TRY(lathe_problem_group(problem, rank->group, LATHE_REDUCE_PARAMETER_GRADS));
  TRY(lathe_plan_create(&rank->plans[number], context, problem));
  lathe_problem_destroy(problem);
  if (rank->group) TRY(lathe_shard_prepare(rank->shard, rank->plans[number]));
  const DLTensor* slots[22];
  for (int i = 0; i < count; ++i) {
    size_t slot;
    TRY(lathe_plan_slot(rank->plans[number], names[i], &slot));
    slots[slot] = &tensors[i];
  }
  size_t bytes;
  TRY(lathe_plan_workspace(rank->plans[number], slots, rank->shard, &bytes));
  TRY(lathe_malloc(context, &rank->workspaces[number], bytes));
  if (!rank->group) {
    TRY(lathe_plan_run(rank->plans[number], slots, rank->workspaces[number], bytes, rank->stream));
    return 0;
  }
  TRY(lathe_plan_run_sharded(rank->plans[number], rank->shard, slots, rank->workspaces[number],
                             bytes, rank->stream));
  return 0;
}

/* Inputs and outputs of the whole axis, on one rank and over ranks. */
static uint16_t whole[2][BUFFERS][T * CHANNELS];
static float wide[2][BUFFERS][T * CHANNELS];

static char* host_of(int over_ranks, int buffer) {
  return is_wide(buffer) ? (char*)wide[over_ranks][buffer] : (char*)whole[over_ranks][buffer];
}

/* Copies the rank's tokens of a buffer to the device, or back. */
static int copy(const struct rank* rank, int buffer, int to_device) {
  if (buffer == CU) {
    TRY(lathe_copy_to_device(context, rank->buffers[CU], offsets, sizeof offsets, NULL));
    return 0;
  }
  char* host = host_of(rank->group != NULL, buffer);
  const int64_t everything[] = {0, has_tokens(buffer) ? T : W}, *intervals = everything;
  const int64_t row = bytes_of(buffer, 1) / (has_tokens(buffer) ? 1 : W);
  size_t count = 1;
  if (rank->group && has_tokens(buffer))
    TRY(lathe_shard_intervals(rank->shard, LATHE_QUERIES, &intervals, &count));
  char* device = rank->buffers[buffer];
  for (size_t n = 0; n < count; ++n) {
    const int64_t first = intervals[2 * n];
    const size_t bytes = (size_t)((intervals[2 * n + 1] - first) * row);
    if (to_device) TRY(lathe_copy_to_device(context, device, host + first * row, bytes, NULL));
    if (!to_device) TRY(lathe_copy_to_host(context, host + first * row, device, bytes, NULL));
    device += bytes;
  }
  return 0;
}

static int run(struct rank* rank) {
  TRY(lathe_stream_create(context, &rank->stream));
  for (int i = 0; i < BUFFERS; ++i) {
    TRY(lathe_malloc(context, &rank->buffers[i], bytes_of(i, rank->tokens)));
    if (i == X || i == G || i == BETA || i == DOUT || i == WEIGHT || i == CU)
      if (copy(rank, i, 1)) return 1;
  }
  for (int i = 0; i < CALLS; ++i)
    if (enqueue(rank, i)) return 1;
  TRY(lathe_stream_synchronize(context, rank->stream));
  for (int i = OUT; i <= DWEIGHT; ++i)
    if (i != DOUT && i != LSE && i != WEIGHT && copy(rank, i, 0)) return 1;
  for (int i = 0; i < BUFFERS; ++i) TRY(lathe_free(context, rank->buffers[i]));
  for (int i = 0; i < CALLS; ++i) {
    TRY(lathe_free(context, rank->workspaces[i]));
    lathe_plan_destroy(rank->plans[i]);
  }
  TRY(lathe_stream_destroy(context, rank->stream));
  return 0;
}

static int run_rank(int number) {
  struct rank rank = {0};
  TRY(lathe_group_create(&rank.group, context, id, WORLD, number, 0));
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  int64_t cu[DOCUMENTS + 1];
  for (int i = 0; i <= DOCUMENTS; ++i) cu[i] = offsets[i];
  options.world = WORLD, options.rank = number, options.length = T;
  options.cu_seqlens = cu, options.offsets = DOCUMENTS + 1;
  options.balance = LATHE_BALANCE_PER_DOCUMENT;
  TRY(lathe_shard_create_with(&rank.shard, &options));
  const int64_t* intervals;
  size_t count;
  TRY(lathe_shard_intervals(rank.shard, LATHE_QUERIES, &intervals, &count));
  for (size_t n = 0; n < count; ++n) rank.tokens += intervals[2 * n + 1] - intervals[2 * n];
  const int failed = run(&rank);
  lathe_shard_destroy(rank.shard);
  lathe_group_destroy(rank.group);
  return failed;
}

static void* thread(void* rank) { return run_rank((int)(intptr_t)rank - 1) ? rank : NULL; }

/* The distance of a result over ranks from the one of one rank, by its size. */
static double distance(int buffer) {
  double error = 0, size = 0;
  for (int64_t n = 0; n < (has_tokens(buffer) ? T : W) * columns[buffer]; ++n) {
    const double one = is_wide(buffer) ? wide[0][buffer][n] : widen(whole[0][buffer][n]);
    const double many = is_wide(buffer) ? wide[1][buffer][n] : widen(whole[1][buffer][n]);
    error += (one - many) * (one - many), size += one * one;
  }
  return sqrt(error / size);
}

int main(void) {
  for (int i = 0; i < BUFFERS; ++i) {
    fill(whole[0][i], sizeof whole[0][i] / 2, i);
    for (int n = 0; n < T * CHANNELS; ++n) wide[0][i][n] = -(float)(n % 89) / 400; /* gates */
    memcpy(whole[1][i], whole[0][i], sizeof whole[0][i]);
    memcpy(wide[1][i], wide[0][i], sizeof wide[0][i]);
  }
  TRY(lathe_context_create(&context, NULL));
  TRY(lathe_unique_id(context, id));
  struct rank alone = {0};
  alone.tokens = T;
  if (run(&alone)) return 1;
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
  const int results[] = {OUT, DX, DG, DBETA, DWEIGHT};
  double worst = 0;
  for (int i = 0; i < 5; ++i) worst = fmax(worst, distance(results[i]));
  printf("two layers of %d tokens over %d ranks: largest distance from one rank %.1e\n", T, WORLD,
         worst);
  lathe_context_destroy(context);
  return worst < 0.01 ? 0 : 1;
}
