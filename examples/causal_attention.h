/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention of one sequence in bfloat16 by its definition, to compare with. */
#pragma once

#include <math.h>

#include "check.h"

struct attention {
  int tokens, heads, key_heads, width;
  const uint16_t *q, *k, *v, *out; /* [tokens, heads or key_heads, width] */
};

/* Column d of row i of head h. */
static inline double expected(const struct attention* a, int i, int h, int d) {
  const int head = h / (a->heads / a->key_heads), width = a->width;
  const uint16_t* q = a->q + (i * a->heads + h) * width;
  double sum = 0, weighted = 0;
  for (int j = 0; j <= i; ++j) {
    const int row = (j * a->key_heads + head) * width;
    double score = 0;
    for (int c = 0; c < width; ++c) score += (double)widen(q[c]) * widen(a->k[row + c]);
    sum += exp(score / sqrt(width));
    weighted += exp(score / sqrt(width)) * widen(a->v[row + d]);
  }
  return weighted / sum;
}

/* The largest error of a sample of the rows and columns of out. */
static inline double largest_error(const struct attention* a) {
  double worst = 0;
  for (int i = 0; i < a->tokens; i += 7)
    for (int h = 0; h < a->heads; ++h)
      for (int d = 0; d < a->width; d += 9) {
        const float found = widen(a->out[(i * a->heads + h) * a->width + d]);
        worst = fmax(worst, fabs(expected(a, i, h, d) - found));
      }
  return worst;
}
