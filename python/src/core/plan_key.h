/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The key of a call in a PlanTable.
 *
 * The key of a call is, for each tensor, whether it is there, its dtype, rank, device and the
 * extents that change the code; then how well the tensors are aligned, and the options. Which
 * extents change the code is the operator's to say: it is learned from the first problem that has
 * the tensor with that rank (lathe_tensor_info.varies), and until then every extent is part of the
 * key.
 */
#ifndef LATHE_PYTHON_PLAN_KEY_H
#define LATHE_PYTHON_PLAN_KEY_H

#include "core.h"

enum {
  MOST_WORDS = MOST_TENSORS * (1 + LATHE_MAX_RANK) + 1,
  ALL_DIMS = (1 << LATHE_MAX_RANK) - 1,
  BEST_ALIGNMENT = 16
};

typedef struct {
  int64_t words[MOST_WORDS];
  size_t count;
  uint64_t hash;
  int alignment; /* what a problem may promise of the tensors */
} Key;

/* Says which dimensions are in the key: a bit for each, by tensor and rank. */
typedef struct {
  uint8_t of[MOST_TENSORS][LATHE_MAX_RANK + 1];
} FixedDims;

/* Makes the key of the tuple `given`: options, and a tensor or None for each name. If `aligned`, it
 * promises the best alignment, whatever the tensors have. Returns 0, or -1. */
int make_key(PyObject* names, const FixedDims* dims, PyObject* given, int aligned, Key* key);
/* Learns from a problem which extents of its tensors change the code. */
void learn_dims(PyObject* names, const lathe_problem* problem, FixedDims* out);

#endif /* LATHE_PYTHON_PLAN_KEY_H */
