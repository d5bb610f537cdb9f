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

/* What a table is given by a call. */
typedef struct {
  PyObject* options;
  size_t count;                    /* of names */
  PyObject* objects[MOST_TENSORS]; /* a tensor or None for each name */
  int borrowed_at[MOST_TENSORS];   /* for each name its index among the borrowed; -1: None */
  Tensors tensors;                 /* those that are not None, borrowed */
} Given;

/* Returns 1 if an object is None or has one of a tuple of types; types may be NULL: any. */
int has_type(PyObject* object, PyObject* types);
/* Borrows the objects that are not None. Returns 0, or -1; either way they are to be given back. */
int borrow_given(const char* const* names, Given* given);
/* Returns 1 if the tensors whose bits are set in `rows` have contiguous rows and are not expanded,
 * and the others are contiguous, but for those whose bits are set in `kept`. */
int lie_well(const Given* given, uint64_t rows, uint64_t kept);
/* Makes the key of a call. If `aligned`, it promises the best alignment, whatever the tensors have.
 * Returns 0, or -1. */
int make_key(const char* const* names, const FixedDims* dims, const Given* given, int aligned,
             Key* key);
/* Learns from a problem which extents of its tensors change the code. */
void learn_dims(const char* const* names, size_t count, const lathe_problem* problem,
                FixedDims* out);

#endif /* LATHE_PYTHON_PLAN_KEY_H */
