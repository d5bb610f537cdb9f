/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.Problem: which tensors there are, of what kind, and with which options. */
#include <string.h>

#include "plan_key.h"

PyTypeObject* ProblemType;

static const char* const kDtypes[] = {"f32", "f16", "bf16", "i32", "i64", "f8_e4m3", "u8"};

static int problem_init(ProblemObject* self, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"op", NULL};
  const char* op;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "s:Problem", names, &op)) return -1;
  if (self->handle) return raise_invalid("a Problem is made once"), -1;
  return succeeded(lathe_problem_create(&self->handle, op)) ? 0 : -1;
}

static void problem_dealloc(ProblemObject* self) {
  lathe_problem_destroy(self->handle);
  Py_XDECREF((PyObject*)self->group);
  free_object((PyObject*)self);
}

static PyObject* problem_parse(PyObject* type, PyObject* line) {
  Py_ssize_t size;
  const char* text = PyUnicode_AsUTF8AndSize(line, &size);
  if (!text) return NULL;
  ProblemObject* self = (ProblemObject*)PyType_GenericNew((PyTypeObject*)type, NULL, NULL);
  if (self && !succeeded(lathe_problem_parse(&self->handle, text, (size_t)size))) Py_CLEAR(self);
  return (PyObject*)self;
}

static PyObject* done(lathe_status status) {
  if (!succeeded(status)) return NULL;
  Py_RETURN_NONE;
}

static PyObject* problem_tensor(ProblemObject* self, PyObject* arguments) {
  const char *name, *dtype;
  PyObject* shape;
  if (!PyArg_ParseTuple(arguments, "ssO:tensor", &name, &dtype, &shape) ||
      !is_made(self->handle, "Problem")) {
    return NULL;
  }
  int kind = 0;
  while (kind <= LATHE_U8 && strcmp(dtype, kDtypes[kind]) != 0) ++kind;
  if (kind > LATHE_U8) {
    return raise_invalid("%s has dtype %.40s; allowed are f32, f16, bf16, i32, i64, f8_e4m3, u8",
                         name, dtype);
  }
  const Py_ssize_t rank = PySequence_Size(shape);
  if (rank < 0) return NULL;
  int64_t extents[LATHE_MAX_RANK];
  if (rank > LATHE_MAX_RANK) {
    return raise_invalid("%s has rank %zd; allowed are up to %d", name, rank, LATHE_MAX_RANK);
  }
  for (Py_ssize_t d = 0; d < rank; ++d) {
    PyObject* extent = PySequence_GetItem(shape, d);
    extents[d] = extent ? PyLong_AsLongLong(extent) : -1;
    Py_XDECREF(extent);
    if (PyErr_Occurred()) return NULL;
  }
  return done(lathe_problem_tensor(self->handle, name, (lathe_dtype)kind, (int)rank, extents));
}

static PyObject* problem_alignment(ProblemObject* self, PyObject* bytes) {
  const long value = PyLong_AsLong(bytes);
  if ((value == -1 && PyErr_Occurred()) || !is_made(self->handle, "Problem")) return NULL;
  return done(
      lathe_problem_alignment(self->handle, value < 0 || value > 1 << 20 ? -1 : (int)value));
}

/* Promises what the arrays of a dictionary have. */
static PyObject* problem_align(ProblemObject* self, PyObject* arguments) {
  const char* op;
  PyObject* arrays;
  if (!PyArg_ParseTuple(arguments, "sO!:align", &op, &PyDict_Type, &arrays) ||
      !is_made(self->handle, "Problem")) {
    return NULL;
  }
  const lathe_operator_info* info = lathe_operator_find(op);
  if (!info) return raise_invalid("there is no operator \"%.40s\"", op);
  int promise = BEST_ALIGNMENT;
  for (size_t i = 0; i < info->tensor_count; ++i) {
    const char* name = info->tensors[i].name;
    PyObject* array = PyDict_GetItemString(arrays, name);
    if (!array || array == Py_None || !info->tensors[i].wide) continue;
    Borrowed borrowed;
    const int failed = borrow(array, name, &borrowed) != 0;
    const int found = failed ? 0 : alignment_of(&borrowed.tensor);
    give_back(&borrowed, 1);
    if (failed) return NULL;
    if (found < info->least_alignment) return raise_unaligned(name, found, info);
    if (found < promise) promise = found;
  }
  return done(lathe_problem_alignment(self->handle, promise));
}

static PyObject* set_bytes(ProblemObject* self, const char* option, PyObject* value) {
  char* text;
  Py_ssize_t size;
  if (PyBytes_AsStringAndSize(value, &text, &size) != 0) return NULL;
  return done(lathe_problem_set_text(self->handle, option, text, (size_t)size));
}

static PyObject* problem_set(ProblemObject* self, PyObject* arguments) {
  const char* option;
  PyObject* value;
  if (!PyArg_ParseTuple(arguments, "sO:set", &option, &value) ||
      !is_made(self->handle, "Problem")) {
    return NULL;
  }
  if (PyBytes_Check(value)) return set_bytes(self, option, value);
  if (PyLong_Check(value)) { /* True and False are such too */
    const long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred()) return NULL;
    return done(lathe_problem_set_int(self->handle, option, number));
  }
  if (PyUnicode_Check(value)) {
    const char* text = PyUnicode_AsUTF8AndSize(value, NULL);
    return text ? done(lathe_problem_set_string(self->handle, option, text)) : NULL;
  }
  const double number = PyFloat_AsDouble(value);
  if (number == -1 && PyErr_Occurred()) return NULL;
  return done(lathe_problem_set_double(self->handle, option, number));
}

static PyObject* problem_group(ProblemObject* self, PyObject* arguments) {
  PyObject* group;
  unsigned flags = 0;
  if (!PyArg_ParseTuple(arguments, "O!|I:group", GroupType, &group, &flags) ||
      !is_made(self->handle, "Problem") || !is_made(((GroupObject*)group)->handle, "Group") ||
      !succeeded(lathe_problem_group(self->handle, ((GroupObject*)group)->handle, flags))) {
    return NULL;
  }
  Py_INCREF(group);
  Py_XDECREF((PyObject*)self->group);
  self->group = (GroupObject*)group;
  Py_RETURN_NONE;
}

/* Gives lathe the values that a dictionary has, by the tensors' names: host tensors. */
static PyObject* problem_infer(ProblemObject* self, PyObject* arguments) {
  PyObject* values = NULL;
  if (!PyArg_ParseTuple(arguments, "|O!:infer", &PyDict_Type, &values) ||
      !is_made(self->handle, "Problem")) {
    return NULL;
  }
  Borrowed borrowed[MOST_TENSORS];
  const DLTensor* table[MOST_TENSORS] = {NULL};
  size_t count = 0;
  int failed = 0;
  lathe_tensor_info info = {.size = sizeof info};
  for (size_t i = 0; values && !failed && i < MOST_TENSORS; ++i) {
    if (lathe_problem_tensor_info(self->handle, i, &info) != LATHE_OK) break;
    PyObject* value = PyDict_GetItemString(values, info.name);
    if (!value || value == Py_None) continue;
    failed = borrow(value, info.name, &borrowed[count]);
    if (failed) break;
    table[i] = &borrowed[count++].tensor;
  }
  if (!failed) failed = !succeeded(lathe_problem_infer(self->handle, values ? table : NULL));
  give_back(borrowed, count);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

static PyObject* problem_open(ProblemObject* self, PyObject* unused) {
  (void)unused;
  return is_made(self->handle, "Problem") ? done(lathe_problem_open(self->handle)) : NULL;
}

static PyObject* problem_text(ProblemObject* self, PyObject* unused) {
  (void)unused;
  size_t needed = 0;
  if (!is_made(self->handle, "Problem") ||
      !succeeded(lathe_problem_text(self->handle, NULL, 0, &needed))) {
    return NULL;
  }
  char* text = PyMem_Malloc(needed + 1);
  if (!text) return PyErr_NoMemory();
  PyObject* out = succeeded(lathe_problem_text(self->handle, text, needed + 1, NULL))
                      ? PyUnicode_FromString(text)
                      : NULL;
  PyMem_Free(text);
  return out;
}

/* Returns a list of an int for each dimension. */
static PyObject* list_of(const lathe_tensor_info* info, const int64_t* wide, const int* narrow) {
  PyObject* out = PyTuple_New(info->rank);
  for (int d = 0; out && d < info->rank; ++d) {
    PyObject* value = PyLong_FromLongLong(wide ? wide[d] : narrow[d]);
    if (!value || PyTuple_SetItem(out, d, value) != 0) Py_CLEAR(out);
  }
  return out;
}

static PyObject* info_row(const lathe_tensor_info* info) {
  PyObject* row = Py_BuildValue(
      "{s:s,s:O,s:O,s:O,s:z}", "name", info->name, "declared", info->declared ? Py_True : Py_False,
      "read", info->declared && info->read ? Py_True : Py_False, "written",
      info->declared && info->written ? Py_True : Py_False, "alias_of", info->alias_of);
  if (!row || !info->declared) return row;
  PyObject* dims = PyTuple_New(info->rank);
  for (int d = 0; dims && d < info->rank; ++d) {
    PyObject* dim = PyUnicode_FromString(info->dims[d]);
    if (!dim || PyTuple_SetItem(dims, d, dim) != 0) Py_CLEAR(dims);
  }
  if (set_item(row, "dims", dims) != 0 ||
      set_item(row, "dtype", PyUnicode_FromString(kDtypes[info->dtype])) != 0 ||
      set_item(row, "shape", list_of(info, info->shape, NULL)) != 0 ||
      set_item(row, "added", list_of(info, NULL, info->added)) != 0 ||
      set_item(row, "varies", list_of(info, NULL, info->varies)) != 0 ||
      set_item(row, "token_dim", PyLong_FromLong(info->token_dim)) != 0 ||
      set_item(row, "token_axis", PyLong_FromLong(info->token_axis)) != 0 ||
      set_item(row, "counts_chunks", PyBool_FromLong(info->counts_chunks)) != 0) {
    Py_CLEAR(row);
  }
  return row;
}

static PyObject* problem_tensors(ProblemObject* self, PyObject* unused) {
  (void)unused;
  if (!is_made(self->handle, "Problem")) return NULL;
  PyObject* out = PyList_New(0);
  lathe_tensor_info info = {.size = sizeof info};
  for (size_t i = 0; out && lathe_problem_tensor_info(self->handle, i, &info) == LATHE_OK; ++i) {
    PyObject* row = info_row(&info);
    if (!row || PyList_Append(out, row) != 0) Py_CLEAR(out);
    Py_XDECREF(row);
  }
  return out;
}

static PyMethodDef methods[] = {
    {"parse", problem_parse, METH_O | METH_CLASS,
     "parse(line) -> Problem\n\nMakes the problem of a manifest's line. Opens no file."},
    {"tensor", (PyCFunction)problem_tensor, METH_VARARGS,
     "tensor(name, dtype, shape)\n\nDeclares a tensor; -1 in the shape varies from run to run."},
    {"alignment", (PyCFunction)problem_alignment, METH_O,
     "alignment(bytes)\n\nPromises that addresses and strides are multiples of it; default 16."},
    {"align", (PyCFunction)problem_align, METH_VARARGS,
     "align(op, arrays)\n\nPromises the alignment that these arrays have, a dictionary by name."},
    {"set", (PyCFunction)problem_set, METH_VARARGS,
     "set(option, value)\n\nSets an option. bytes are the text of an option that takes a file."},
    {"group", (PyCFunction)problem_group, METH_VARARGS,
     "group(group, flags=0)\n\nSplits the sequence axis over a group."},
    {"infer", (PyCFunction)problem_infer, METH_VARARGS,
     "infer(values=None)\n\nDeclares the outputs that follow; values: host tensors by name."},
    {"open", (PyCFunction)problem_open, METH_NOARGS,
     "open()\n\nLeaves every extent open that may vary without a new kernel."},
    {"text", (PyCFunction)problem_text, METH_NOARGS,
     "text() -> str\n\nReturns the problem as a manifest's line."},
    {"tensors", (PyCFunction)problem_tensors, METH_NOARGS,
     "tensors() -> list[dict]\n\nReturns what is declared, in the order of the operator's table."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {{Py_tp_doc, "Problem(op)\n\nWhat is asked of an operator."},
                              {Py_tp_init, problem_init},
                              {Py_tp_new, PyType_GenericNew},
                              {Py_tp_dealloc, problem_dealloc},
                              {Py_tp_methods, methods},
                              {0, NULL}};

static PyType_Spec spec = {"lathe._core.Problem", sizeof(ProblemObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int add_problem_type(PyObject* module) { return add_type(module, &spec, &ProblemType); }
