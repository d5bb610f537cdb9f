// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These programs have in common that they end at the first call that fails, and print each result
// beside the one of a plain loop.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

inline void check(cudaError_t error, const char* call, int line) {
  if (error == cudaSuccess) return;
  std::printf("line %d: %s: %s\n", line, call, cudaGetErrorName(error));
  std::exit(1);
}
#define CHECK(call) check(call, #call, __LINE__)

// Ends the program unless |got - expected| <= bound.
inline void compare(const char* what, double got, double expected, double bound = 0) {
  std::printf("%s: %.9g, expected %.9g\n", what, got, expected);
  if (std::fabs(got - expected) <= bound) return;
  std::printf("%s is wrong\n", what);
  std::exit(1);
}

// Numbers that look random and are the same in each run: 0 to 2^24 - 1.
inline unsigned next_number(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}
