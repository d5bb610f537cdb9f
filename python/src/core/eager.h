/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that decide whether a call may be run at once, without torch's dispatcher. They are
 * asked of torch's own functions, because the extension is not linked with torch. */
#ifndef LATHE_PYTHON_EAGER_H
#define LATHE_PYTHON_EAGER_H

#include "core.h"
#include "plan_key.h"

/* Which tensors a call changes in place, and by which one each: a tensor that is not given changes
 * nothing. */
typedef struct {
  size_t count;
  unsigned char tensor[MOST_TENSORS], by[MOST_TENSORS];
} Changes;

/* Returns 1 if one of a tuple of functions without arguments says yes, 0, or -1 with an exception.
 * functions may be NULL. */
int any_says_yes(PyObject* functions);
/* Returns 1 if `enabled`, a function or NULL, says yes and an object that is not None has
 * requires_grad; 0, or -1 with an exception. */
int wants_gradient(PyObject* enabled, PyObject* const* objects, size_t count);
/* Returns 1 if `negated`, a method of tensors or NULL, says of a tensor that what lies in memory is
 * the negative of its values; 0, or -1 with an exception. DLPack's table does not tell. */
int any_negated(PyObject* negated, const Given* given);
/* Tells `note`, a function or NULL, of the objects that a call changed: those of `changes` whose
 * maker is there, and outputs that the caller has (a tuple, or NULL). Tensors of inference mode
 * have no versions, and are left out. Returns 0, or -1 with an exception. */
int note_changes(PyObject* note, const Changes* changes, PyObject* const* objects,
                 PyObject* outputs);
/* Returns the items of a dictionary whose values are not None, as a tuple of pairs. */
PyObject* pairs_of(PyObject* options);
/* Returns 1 if pairs_of(options) would have the same names and values as these pairs. */
int are_pairs_of(PyObject* pairs, PyObject* options);

#endif /* LATHE_PYTHON_EAGER_H */
