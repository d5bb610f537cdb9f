/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Questions that decide whether a call may be run at once, without torch's dispatcher. They are
 * asked of torch's own functions, because the extension is not linked with torch. */
#ifndef LATHE_PYTHON_EAGER_H
#define LATHE_PYTHON_EAGER_H

#include "core.h"
#include "plan_key.h"

/* Returns 1 if one of a tuple of functions without arguments says yes, 0, or -1 with an exception.
 * functions may be NULL. */
int any_says_yes(PyObject* functions);
/* Returns 1 if `enabled`, a function or NULL, says yes and an object that is not None has
 * requires_grad; 0, or -1 with an exception. */
int wants_gradient(PyObject* enabled, PyObject* const* objects, size_t count);
/* Returns 1 if `negated`, a method of tensors or NULL, says of a tensor that what lies in memory is
 * the negative of its values; 0, or -1 with an exception. DLPack's table does not tell. */
int any_negated(PyObject* negated, const Given* given);
/* Returns the items of a dictionary whose values are not None, as a tuple of pairs. */
PyObject* pairs_of(PyObject* options);
/* Returns 1 if pairs_of(options) would have the same names and values as these pairs. */
int are_pairs_of(PyObject* pairs, PyObject* options);

#endif /* LATHE_PYTHON_EAGER_H */
