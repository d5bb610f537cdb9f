/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the examples: calls that must succeed, bfloat16 on the host, and inputs. */
#pragma once

#include <lathe.h>
#include <stdio.h>
#include <string.h>

#define TRY(call) \
  if ((call) != LATHE_OK) return fprintf(stderr, "%s: %s\n", #call, lathe_last_error()), 1

static inline float widen(uint16_t bits) {
  const uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

static inline uint16_t narrow(float value) { /* towards zero */
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  return (uint16_t)(word >> 16);
}

/* Fills input number `input` with values between -1 and 1. */
static inline void fill(void* values, size_t count, int input) {
  for (size_t n = 0; n < count; ++n)
    ((uint16_t*)values)[n] = narrow((float)((n * 37 + (size_t)input * 11) % 101) / 50 - 1);
}
