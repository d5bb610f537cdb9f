/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The small hybrid model of server.c, a layer of KDA with its convolution and one of latent
 * attention: its weights, what the host computes of it, and the whole of it in double. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Widths of the residual stream, of heads, of latent keys and of the values that begin them. */
/* clang-format off */
enum { WORDS = 24, E = 16, H = 2, D = 16, TAPS = 4, CHANNELS = 3 * H * D, KEYS = 576,
       VALUES = 512 };
enum { EMBED, QKV, GATE, BETA, KDA_OUT, QUERY, KEY, OUT, HEAD, CONV, MATRICES };
static const int rows_of[] = {WORDS, CHANNELS, H * D, H, E, H * KEYS, KEYS, E, WORDS, CHANNELS};
static const int columns_of[] = {E, E, E, E, H * D, E, E, H * VALUES, E, TAPS};
/* clang-format on */
static float* weights[MATRICES];

static inline uint16_t nearest(float value) { /* of bfloat16, a tie to the even one */
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static void make_weights(void) {
  uint32_t noise = 1;
  for (int m = 0; m < MATRICES; ++m) {
    const int count = rows_of[m] * columns_of[m];
    float scale = m == EMBED ? 1.5f : 1.7f / sqrtf((float)columns_of[m]);
    if (m == KDA_OUT || m == OUT) scale *= 0.5f; /* a word says most of what comes next */
    weights[m] = malloc(sizeof(float) * (size_t)count);
    for (int i = 0; i < count; ++i) {
      noise = noise * 1664525u + 1013904223u;
      weights[m][i] = scale * ((float)(noise >> 8) / (1 << 23) - 1);
      if (m == CONV) weights[m][i] = roundf(weights[m][i] * 64) / 64; /* as bfloat16 has it */
    }
  }
}

/* out = matrix * in, and out += it. */
static void times(int matrix, const double* in, double* out, int add) {
  const int columns = columns_of[matrix];
  for (int r = 0; r < rows_of[matrix]; ++r) {
    double sum = add ? out[r] : 0;
    for (int c = 0; c < columns; ++c) sum += (double)weights[matrix][r * columns + c] * in[c];
    out[r] = sum;
  }
}

struct token { /* one of them on its way: the kernels compute `mixed` and `attended` */
  double stream[E], qkv[CHANNELS], gate[H * D], beta[H], mixed[H * D];
  double query[H * KEYS], key[KEYS], attended[H * VALUES], logits[WORDS];
};

static void before_mixing(struct token* t, int word) {
  for (int e = 0; e < E; ++e) t->stream[e] = weights[EMBED][word * E + e];
  times(QKV, t->stream, t->qkv, 0);
  times(GATE, t->stream, t->gate, 0);
  times(BETA, t->stream, t->beta, 0);
  for (int i = 0; i < H * D; ++i) t->gate[i] = -0.3 * fabs(t->gate[i]); /* log of a decay */
  for (int h = 0; h < H; ++h) t->beta[h] = 1 / (1 + exp(-t->beta[h]));
}
static void before_attending(struct token* t) {
  times(KDA_OUT, t->mixed, t->stream, 1);
  times(QUERY, t->stream, t->query, 0);
  times(KEY, t->stream, t->key, 0);
}
/* Returns the best word. */
static int after_attending(struct token* t) {
  int best = 0;
  times(OUT, t->attended, t->stream, 1);
  times(HEAD, t->stream, t->logits, 0);
  for (int w = 1; w < WORDS; ++w)
    if (t->logits[w] > t->logits[best]) best = w;
  return best;
}

static void normalise(double* row) {
  double sum = 1e-6;
  for (int d = 0; d < D; ++d) sum += row[d] * row[d];
  for (int d = 0; d < D; ++d) row[d] /= sqrt(sum);
}

/* The layers by their definitions. Returns how far each word behind the prompt is, at most, from
 * the best one that the model has there. */
static double worst_choice(const int* words, int prompt, int count) {
  struct token* all = calloc((size_t)count, sizeof *all);
  static double state[H][D][D];
  double worst = 0, convolved[CHANNELS];
  memset(state, 0, sizeof state);
  for (int i = 0; i < count; ++i) {
    struct token* t = &all[i];
    before_mixing(t, words[i]);
    for (int c = 0; c < CHANNELS; ++c) {
      double z = 0;
      for (int tap = 0; tap < TAPS; ++tap)
        if (i - TAPS + 1 + tap >= 0)
          z += (double)weights[CONV][c * TAPS + tap] * all[i - TAPS + 1 + tap].qkv[c];
      convolved[c] = z / (1 + exp(-z));
    }
    for (int h = 0; h < H; ++h) {
      double *q = convolved + h * D, *k = convolved + (H + h) * D, *v = convolved + (2 * H + h) * D;
      normalise(q), normalise(k);
      for (int e = 0; e < D; ++e) {
        double error = v[e], out = 0;
        for (int d = 0; d < D; ++d) error -= (state[h][d][e] *= exp(t->gate[h * D + d])) * k[d];
        for (int d = 0; d < D; ++d) out += (state[h][d][e] += t->beta[h] * k[d] * error) * q[d];
        t->mixed[h * D + e] = out / sqrt(D);
      }
    }
    before_attending(t);
    for (int h = 0; h < H; ++h) {
      double sum = 0;
      for (int j = 0; j <= i; ++j) {
        double score = 0;
        for (int d = 0; d < KEYS; ++d) score += t->query[h * KEYS + d] * all[j].key[d];
        score = exp(score / sqrt(KEYS)), sum += score;
        for (int d = 0; d < VALUES; ++d) t->attended[h * VALUES + d] += score * all[j].key[d];
      }
      for (int d = 0; d < VALUES; ++d) t->attended[h * VALUES + d] /= sum;
    }
    const int best = after_attending(t);
    if (i + 1 >= prompt && i + 1 < count) {
      const double behind = t->logits[best] - t->logits[words[i + 1]];
      if (behind > worst) worst = behind;
    }
  }
  free(all);
  return worst;
}
