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

/* What an operator asks of addresses and strides. */
typedef struct {
  int least;     /* bytes that they must be multiples of; 1: anything */
  uint64_t wide; /* a bit for each tensor of which it asks that */
  uint64_t kept; /* and for each that may be changed in place, of which no copy is made */
} Alignments;

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
/* Reads the alignments of an operator of this name, for tensors of these names. Returns 0, or -1
 * with an exception. */
int read_alignments(const char* op, const char* const* names, size_t count, Alignments* out);
/* Returns what a problem may promise of this tensor: 16, unless its address or a stride keeps it
 * from accesses as wide as its rows allow. */
int alignment_of(const DLTensor* tensor);
/* Returns a bit for each tensor that is less aligned than the operator takes. */
uint64_t unaligned(const Alignments* alignments, const Given* given);
/* Takes copy(tensor) in the place of each input that is less aligned than the operator takes, and
 * keeps the copies in `copies`, a list or NULL, to be dropped after the run. Returns 0, or -1. */
int copy_unaligned(const char* const* names, const Alignments* alignments, PyObject* copy,
                   Given* given, PyObject** copies);
/* Raises Unsupported for a tensor that is aligned to `found` bytes. Returns NULL. */
PyObject* raise_unaligned(const char* name, int found, const lathe_operator_info* op);
/* The same for the first tensor of a call that the operator does not take; there is one. */
PyObject* refuse_unaligned(const char* const* names, const Alignments* alignments, const char* op,
                           const Given* given);
/* Makes the key of a call. If `aligned`, it promises the best alignment, whatever the tensors have.
 * Returns 0, or -1. */
int make_key(const char* const* names, const FixedDims* dims, const Alignments* alignments,
             const Given* given, int aligned, Key* key);
/* Learns from a problem which extents of its tensors change the code. */
void learn_dims(const char* const* names, size_t count, const lathe_problem* problem,
                FixedDims* out);

#endif /* LATHE_PYTHON_PLAN_KEY_H */
