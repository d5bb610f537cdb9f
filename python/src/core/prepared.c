/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.Prepared: makes a call's outputs and runs its plan, in one call of C. */
#include "prepared.h"

PyTypeObject* PreparedType;

/* ---- outputs ------------------------------------------------------------------------------- */

/* True if a tensor lies as make_like would lay it out anew: an output of that shape is contiguous.
 */
static int is_contiguous(const DLTensor* tensor) {
  int64_t wanted = 1;
  for (int d = tensor->ndim - 1; tensor->strides && d >= 0; --d) {
    if (tensor->strides[d] != wanted) return 0;
    wanted *= tensor->shape[d];
  }
  return 1;
}

static const DLTensor* tensor_of(const Given* given, int name) {
  return &given->tensors.borrowed[given->borrowed_at[name]].tensor;
}

/* Returns make(*extents, **keywords). Single numbers are read faster by torch than a tuple. */
static PyObject* make_shaped(const Recipe* recipe, const Given* given) {
  PyObject* shape = PyTuple_New(recipe->rank);
  for (int d = 0; shape && d < recipe->rank; ++d) {
    const Extent* extent = &recipe->extents[d];
    const int64_t from = extent->name < 0 ? 0 : tensor_of(given, extent->name)->shape[extent->dim];
    PyObject* number = PyLong_FromLongLong(from + extent->added);
    if (!number || PyTuple_SetItem(shape, d, number) != 0) Py_CLEAR(shape);
  }
  if (!shape) return NULL;
  PyObject* out = PyObject_Call(recipe->make, shape, recipe->keywords);
  Py_DECREF(shape);
  return out;
}

/* Returns make((options, *tensors)): of an output whose shape depends on values. */
static PyObject* make_of_values(const Recipe* recipe, const Given* given) {
  PyObject* all = PyTuple_New((Py_ssize_t)given->count + 1);
  if (!all) return NULL;
  for (size_t i = 0; i <= given->count; ++i) {
    PyObject* item = i == 0 ? given->options : given->objects[i - 1];
    Py_INCREF(item);
    PyTuple_SetItem(all, (Py_ssize_t)i, item);
  }
  PyObject* out = PyObject_CallFunctionObjArgs(recipe->make, all, NULL);
  Py_DECREF(all);
  return out;
}

static PyObject* make_output(const PreparedObject* self, const Recipe* recipe, const Given* given) {
  if (!recipe->make) Py_RETURN_NONE;
  if (recipe->rank < 0) return make_of_values(recipe, given);
  if (recipe->like >= 0 && is_contiguous(tensor_of(given, recipe->like))) {
    return PyObject_CallFunctionObjArgs(self->make_like, given->objects[recipe->like], NULL);
  }
  return make_shaped(recipe, given);
}

/* Returns an output that the caller has; None if the call has none such. */
static PyObject* take_output(const Recipe* recipe, PyObject* outputs, size_t index) {
  PyObject* found = recipe->make ? PyTuple_GetItem(outputs, (Py_ssize_t)index) : Py_None;
  if (recipe->make && found == Py_None) return raise_invalid("output %zu is None", index);
  Py_XINCREF(found);
  return found;
}

PyObject* run_prepared(const PreparedObject* self, Given* given, const lathe_shard* shard,
                       PyObject* outputs) {
  PyObject* made = PyTuple_New((Py_ssize_t)self->count);
  for (size_t i = 0; made && i < self->count; ++i) {
    const Recipe* recipe = &self->outputs[i];
    PyObject* output = outputs ? take_output(recipe, outputs, i) : make_output(self, recipe, given);
    if (!output || PyTuple_SetItem(made, (Py_ssize_t)i, output) != 0 ||
        (output != Py_None && borrow_more(output, "an output", &given->tensors) != 0)) {
      Py_CLEAR(made);
    }
  }
  if (made && run_borrowed(self->plan, &given->tensors, NULL, self->workspace, shard) != 0) {
    Py_CLEAR(made);
  }
  return made;
}

static int has_dim(const Given* given, int name, int dim) {
  return (size_t)name < given->count && given->borrowed_at[name] >= 0 &&
         dim < tensor_of(given, name)->ndim;
}

int recipes_fit(const PreparedObject* self, const Given* given) {
  for (size_t i = 0; i < self->count; ++i) {
    const Recipe* recipe = &self->outputs[i];
    if (recipe->make && recipe->like >= 0 && !has_dim(given, recipe->like, -1)) return 0;
    for (int d = 0; recipe->make && d < recipe->rank; ++d) {
      const Extent* extent = &recipe->extents[d];
      if (extent->name >= 0 && !has_dim(given, extent->name, extent->dim)) return 0;
    }
  }
  return 1;
}

/* ---- the object ---------------------------------------------------------------------------- */

/* Reads a tuple of (name, dim, added). */
static int read_extents(PyObject* list, Recipe* out) {
  const Py_ssize_t rank = PyTuple_Check(list) ? PyTuple_Size(list) : LATHE_MAX_RANK + 1;
  if (rank > LATHE_MAX_RANK) return raise_invalid("an output has no tuple of few extents"), -1;
  for (Py_ssize_t d = 0; d < rank; ++d) {
    Extent* extent = &out->extents[d];
    long long added;
    if (!PyArg_ParseTuple(PyTuple_GetItem(list, d), "iiL:extent", &extent->name, &extent->dim,
                          &added)) {
      return -1;
    }
    if (extent->name >= MOST_TENSORS || extent->dim < 0 || extent->dim >= LATHE_MAX_RANK) {
      return raise_invalid("an extent is of tensor %d, dimension %d", extent->name, extent->dim),
             -1;
    }
    extent->added = added;
  }
  out->rank = (int)rank;
  return 0;
}

static int read_output(PyObject* item, Recipe* out) {
  PyObject *make, *keywords, *extents;
  if (item == Py_None) return 0;
  if (!PyArg_ParseTuple(item, "OO!Oi:output", &make, &PyDict_Type, &keywords, &extents,
                        &out->like)) {
    return -1;
  }
  out->rank = -1;
  if (extents != Py_None && read_extents(extents, out) != 0) return -1;
  if (out->like >= MOST_TENSORS) return raise_invalid("an output is like %d", out->like), -1;
  Py_INCREF(make), Py_INCREF(keywords);
  out->make = make, out->keywords = keywords;
  return 0;
}

static int prepared_init(PreparedObject* self, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"plan", "outputs", "workspace", "make_like", NULL};
  PyObject *plan, *outputs, *workspace, *make_like;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!OO:Prepared", names, PlanType, &plan,
                                   &PyTuple_Type, &outputs, &workspace, &make_like)) {
    return -1;
  }
  if (self->plan) return raise_invalid("a Prepared is made once"), -1;
  Py_INCREF(plan), Py_INCREF(workspace), Py_INCREF(make_like);
  self->plan = (PlanObject*)plan, self->workspace = workspace, self->make_like = make_like;
  self->outputs = PyMem_Calloc((size_t)PyTuple_Size(outputs) + 1, sizeof *self->outputs);
  if (!self->outputs) return PyErr_NoMemory(), -1;
  self->count = (size_t)PyTuple_Size(outputs);
  for (size_t i = 0; i < self->count; ++i) {
    if (read_output(PyTuple_GetItem(outputs, (Py_ssize_t)i), &self->outputs[i]) != 0) return -1;
  }
  return 0;
}

static void prepared_dealloc(PreparedObject* self) {
  for (size_t i = 0; i < self->count; ++i) {
    Py_XDECREF(self->outputs[i].make), Py_XDECREF(self->outputs[i].keywords);
  }
  PyMem_Free(self->outputs);
  Py_XDECREF((PyObject*)self->plan), Py_XDECREF(self->workspace), Py_XDECREF(self->make_like);
  free_object((PyObject*)self);
}

/* Writes outputs that the caller has. */
static PyObject* prepared_into(PreparedObject* self, PyObject* given) {
  PyObject* objects[2 * MOST_TENSORS];
  const Py_ssize_t count = PyTuple_Size(given);
  if (!self->plan) return PyErr_SetString(PyExc_ValueError, "this Prepared was never made"), NULL;
  if (count > 2 * MOST_TENSORS) return raise_invalid("a run was given %zd tensors", count);
  for (Py_ssize_t i = 0; i < count; ++i) objects[i] = PyTuple_GetItem(given, i);
  if (run_plan(self->plan, objects, (size_t)count, NULL, self->workspace, NULL) != 0) return NULL;
  Py_RETURN_NONE;
}

static PyObject* prepared_plan(PreparedObject* self, void* unused) {
  (void)unused;
  PyObject* plan = self->plan ? (PyObject*)self->plan : Py_None;
  Py_INCREF(plan);
  return plan;
}

static PyMethodDef methods[] = {
    {"into", (PyCFunction)prepared_into, METH_VARARGS,
     "into(*tensors)\n\nRuns the plan on inputs and outputs that are given."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef getters[] = {{"plan", (getter)prepared_plan, NULL, "The plan.", NULL},
                                {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Prepared(plan, outputs, workspace, make_like)\n\n"
     "A plan and what PlanTable.run needs around it. workspace: as a call of the plan takes it.\n"
     "outputs: for each output None, if the call has none such, or (make, keywords, extents,\n"
     "like). An output is make(*extents, **keywords); extents are (name, dim, added): the extent\n"
     "of dimension dim of the input with this index among the table's names, or of none for -1,\n"
     "and a number more. Where extents is None, it is make((options, *inputs)). like is the index\n"
     "of an input with the same shape and dtype, or -1: if that is contiguous, the output is\n"
     "make_like(input)."},
    {Py_tp_init, prepared_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, prepared_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, NULL}};

static PyType_Spec spec = {"lathe._core.Prepared", sizeof(PreparedObject), 0, Py_TPFLAGS_DEFAULT,
                           slots};

int add_prepared_type(PyObject* module) { return add_type(module, &spec, &PreparedType); }
