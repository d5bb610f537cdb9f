/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* A plan with what a call needs around it: how its outputs are made, and its workspaces. */
#ifndef LATHE_PYTHON_PREPARED_H
#define LATHE_PYTHON_PREPARED_H

#include "plan_key.h"

/* An extent of an output: that of a dimension of an input, and a number more. */
typedef struct {
  int name; /* of the input, by its index; -1: only the number counts */
  int dim;
  int64_t added;
} Extent;

/* How an output is made; see the text of the type. */
typedef struct {
  PyObject *make, *keywords; /* make is NULL if there is no such output */
  int rank;                  /* -1: make is called with all that the call gave */
  int like;                  /* the input whose dims and dtype it has; -1: none */
  Extent extents[LATHE_MAX_RANK];
} Recipe;

typedef struct {
  PyObject_HEAD
  PlanObject* plan;
  PyObject *workspace, *make_like;
  size_t count;
  Recipe* outputs;
} PreparedObject;

extern PyTypeObject* PreparedType;

/* Returns 1 if the outputs' recipes refer to tensors and dimensions that such a call has. */
int recipes_fit(const PreparedObject* self, const Given* given);
/* Makes the outputs, or takes those of a tuple, and runs the plan on the tensors given and on the
 * outputs. Returns the outputs, a tuple with None for each that these inputs do not have; NULL with
 * an exception. */
PyObject* run_prepared(const PreparedObject* self, Given* given, const lathe_shard* shard,
                       PyObject* outputs);

#endif /* LATHE_PYTHON_PREPARED_H */
