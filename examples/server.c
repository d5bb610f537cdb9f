/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A server of a small hybrid model: requests come and go in one batch, prompts that begin alike
 * share a page and states (a prefix cache), and words are drafted and verified several at a time.
 * Every word that it chose is compared with the best one of the model in double. */
#include "server_calls.h"

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
