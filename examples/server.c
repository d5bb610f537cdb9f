/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A server of a small hybrid model: requests come and go in one batch, prompts that begin alike
 * share a page and states (a prefix cache), and words are drafted and verified several at a time.
 * Every word that it chose is compared with the best one of the model in double. */
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

/* A request: `done` of its words have keys and states, and `accepted` of the last step's count. */
struct request {
  int words[TABLE * PAGE], count, prompt, done, accepted, rows, held, pages[TABLE];
};
static struct request requests[REQUESTS], *seats[SEATS];
static struct { int words[PAGE], page, used; } cached[CACHED]; /* the first page of a prompt */
static int users[PAGES], best[ROWS], reused, taken, steps;

static int new_page(void) {
  int page = 0;
  while (users[page] > 0) ++page;
  users[page] = 1;
  return page;
}
/* Computes the next `rows` words of each request, from `done` on. */
static int forward(struct request** batch, int sequences, const struct call* conv) {
  int rows = 0;
  for (int n = 0; n < sequences; ++n) {
    struct request* r = batch[n];
    while (r->held * PAGE < r->done + r->rows) r->pages[r->held++] = new_page();
    for (int p = 0; p < TABLE; ++p) number[TABLES][n * TABLE + p] = r->pages[p];
    number[LENGTHS][n] = r->done, number[ACCEPTED][n] = r->accepted, number[OFFSETS][n] = rows;
    for (int i = 0; i < r->rows; ++i) before_mixing(&step[rows++], r->words[r->done + i]);
  }
  number[OFFSETS][sequences] = rows;
  for (int i = OFFSETS; i < TENSORS; ++i)
    TRY(lathe_copy_to_device(context, device[i], number[i], sizeof number[i], NULL));
  if (UP(X, qkv) || UP(G, gate) || UP(STEP, beta)) return 1;
  if (run(&conv[0], sequences, rows) || run(&conv[1], sequences, rows) || DOWN(MIXED, mixed))
    return 1;
  for (int i = 0; i < rows; ++i) before_attending(&step[i]);
  if (UP(QUERIES, query) || UP(LATENTS, key) || run(&calls[ATTEND], sequences, rows)) return 1;
  if (DOWN(ATTENDED, attended)) return 1;
  for (int i = 0; i < rows; ++i) best[i] = after_attending(&step[i]);
  return 0;
}
/* The prompt of a request for a seat: from the states of a prompt that began alike, or from zeros,
 * and then the states behind the first page are kept. */
static int admit(struct request* r, int s) {
  static int next;
  int from = -1, keep = -1;
  for (int c = 0; c < CACHED; ++c)
    if (cached[c].used && memcmp(cached[c].words, r->words, sizeof cached->words) == 0) from = c;
  if (from >= 0) {
    r->done = PAGE, r->held = 1, r->pages[0] = cached[from].page, ++reused;
  } else {
    keep = next++ % CACHED;
    if (cached[keep].used) --users[cached[keep].page];
  }
  number[CONV_SLOT][0] = s, number[CONV_FROM][0] = from < 0 ? -1 : SEATS + from;
  number[KDA_SLOT][0] = s * SPEC, number[KDA_FROM][0] = from < 0 ? -1 : SEATS * SPEC + from;
  number[KEPT][1] = keep >= 0, number[KEPT_TOKEN][0] = PAGE;
  number[KEPT_CONV][0] = SEATS + keep, number[KEPT_KDA][0] = SEATS * SPEC + keep;
  r->rows = r->prompt - r->done;
  if (forward(&r, 1, &calls[PREFILL_CONV])) return 1;
  if (keep >= 0) {
    memcpy(cached[keep].words, r->words, sizeof cached->words);
    cached[keep].used = 1, cached[keep].page = r->pages[0];
  }
  ++users[r->pages[0]]; /* the cache's and the request's */
  r->done = r->prompt, r->accepted = 1, r->count = r->prompt + 1;
  r->words[r->prompt] = best[r->rows - 1];
  seats[s] = r;
  return 0;
}
/* Words after the last place where the last word stood are drafts. */
static void draft(struct request* r) {
  int at = r->done - 1;
  while (at >= 0 && r->words[at] != r->words[r->done]) --at;
  for (r->rows = 1; at >= 0 && r->rows < SPEC && at + r->rows < r->done; ++r->rows)
    r->words[r->done + r->rows] = r->words[at + r->rows];
}
/* A step of all seats: drafts count as far as the model would have chosen them. */
static int decode(void) {
  struct request* batch[SEATS];
  int sequences = 0, row = 0;
  for (int s = 0; s < SEATS; ++s) {
    if (seats[s] == NULL) continue;
    number[CONV_SLOT][sequences] = s;
    for (int i = 0; i < SPEC; ++i) number[KDA_SLOT][sequences * SPEC + i] = s * SPEC + i;
    draft(batch[sequences++] = seats[s]);
  }
  if (forward(batch, sequences, &calls[DECODE_CONV])) return 1;
  for (int n = 0; n < sequences; row += batch[n++]->rows) {
    struct request* r = batch[n];
    int a = 1;
    while (a < r->rows && best[row + a - 1] == r->words[r->done + a]) ++a;
    r->words[r->done + a] = best[row + a - 1];
    r->done += a, r->accepted = a, r->count = r->done + 1, taken += a - 1;
  }
  for (int s = 0; s < SEATS; ++s) {
    if (seats[s] == NULL || seats[s]->count - seats[s]->prompt < WANTED) continue;
    while (seats[s]->held > 0) --users[seats[s]->pages[--seats[s]->held]];
    seats[s] = NULL;
  }
  return 0;
}

int main(void) {
  double worst = 0;
  int words = 0, waiting = 0, busy = 1;
  make_weights();
  TRY(lathe_context_create(&context, NULL));
  for (int i = 0; i < CALLS; ++i)
    if (prepare(&calls[i])) return 1;
  for (int i = 0; i < TENSORS; ++i) {
    const size_t large = (size_t)PAGES * PAGE * KEYS * 2;
    TRY(lathe_malloc(context, &device[i], i == CACHE ? large : sizeof(float) * WIDE));
  }
  uint16_t filter[CHANNELS * TAPS];
  for (int i = 0; i < CHANNELS * TAPS; ++i) filter[i] = narrow(weights[CONV][i]);
  TRY(lathe_copy_to_device(context, device[FILTER], filter, sizeof filter, NULL));
  for (int n = 0; n < REQUESTS; ++n) { /* two kinds of prompts, which end differently */
    requests[n].prompt = PAGE + 2 + n % 3;
    for (int i = 0; i < requests[n].prompt; ++i)
      requests[n].words[i] = (i * (i < PAGE ? 7 + n % 2 : 5 + n) + n % 2) % WORDS;
  }
  for (; busy || waiting < REQUESTS; ++steps) { /* a request comes with every second step */
    for (int s = 0; s < SEATS && waiting < REQUESTS && 2 * waiting <= steps; ++s)
      if (seats[s] == NULL && admit(&requests[waiting++], s)) return 1;
    busy = 0;
    for (int s = 0; s < SEATS; ++s) busy += seats[s] != NULL;
    if (busy && decode()) return 1;
  }
  for (int n = 0; n < REQUESTS; ++n) {
    words += requests[n].count - requests[n].prompt;
    worst = fmax(worst, worst_choice(requests[n].words, requests[n].prompt, requests[n].count));
  }
  printf(
      "server of %d requests, %d words in %d steps, %d prompts from the cache, %d drafts taken: "
      "largest error %.1e\n",
      REQUESTS, words, steps, reused, taken, worst);
  for (int i = 0; i < TENSORS; ++i) TRY(lathe_free(context, device[i]));
  for (int i = 0; i < CALLS; ++i) lathe_plan_destroy(calls[i].plan);
  for (int i = 0; i < MATRICES; ++i) free(weights[i]);
  lathe_context_destroy(context);
  return worst < 0.1 && reused > 0 && taken > 0 ? 0 : 1;
}
