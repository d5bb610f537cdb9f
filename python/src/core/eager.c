/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of torch, and made of options, before an eager call. */
#include "eager.h"

/* Returns what a function without arguments answers: 1 or 0, or -1. */
static int says_yes(PyObject* function) {
  PyObject* answer = PyObject_CallNoArgs(function);
  const int yes = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return yes;
}

int any_says_yes(PyObject* functions) {
  int yes = 0;
  for (Py_ssize_t i = 0; functions && yes == 0 && i < PyTuple_Size(functions); ++i) {
    yes = says_yes(PyTuple_GetItem(functions, i));
  }
  return yes;
}

int wants_gradient(PyObject* enabled, PyObject* const* objects, size_t count) {
  static PyObject* attribute;
  if (!attribute) attribute = PyUnicode_InternFromString("requires_grad");
  int wanted = enabled ? says_yes(enabled) : 0;
  if (wanted <= 0) return wanted;
  for (size_t i = 0; i < count; ++i) {
    if (objects[i] == Py_None) continue;
    PyObject* value = PyObject_GetAttr(objects[i], attribute);
    wanted = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    if (wanted != 0) return wanted;
  }
  return 0;
}

int any_negated(PyObject* negated, const Given* given) {
  int found = 0;
  for (size_t i = 0; negated && i < given->count && found == 0; ++i) {
    if (given->borrowed_at[i] < 0) continue;
    PyObject* value = PyObject_CallFunctionObjArgs(negated, given->objects[i], NULL);
    found = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
  }
  return found;
}

/* Adds a tensor to a list unless it has no version; returns 0, or -1. */
static int add_versioned(PyObject* list, PyObject* tensor) {
  static PyObject* method;
  if (!method) method = PyUnicode_InternFromString("is_inference");
  if (tensor == Py_None) return 0;
  PyObject* answer = PyObject_CallMethodObjArgs(tensor, method, NULL);
  const int without = answer ? PyObject_IsTrue(answer) : -1;
  Py_XDECREF(answer);
  return without == 0 ? PyList_Append(list, tensor) : without < 0 ? -1 : 0;
}

int note_changes(PyObject* note, const Changes* changes, PyObject* const* objects,
                 PyObject* outputs) {
  const Py_ssize_t given = outputs ? PyTuple_Size(outputs) : 0;
  if (!note || (changes->count == 0 && given == 0)) return 0;
  PyObject *list = PyList_New(0), *told = NULL;
  int bad = list == NULL;
  for (size_t i = 0; !bad && i < changes->count; ++i) {
    if (objects[changes->by[i]] == Py_None) continue;
    bad = add_versioned(list, objects[changes->tensor[i]]) != 0;
  }
  for (Py_ssize_t i = 0; !bad && i < given; ++i) {
    bad = add_versioned(list, PyTuple_GetItem(outputs, i)) != 0;
  }
  if (!bad && PyList_Size(list) > 0) {
    told = PyObject_CallFunctionObjArgs(note, list, NULL);
    bad = told == NULL;
  }
  Py_XDECREF(told);
  Py_XDECREF(list);
  return bad ? -1 : 0;
}

/* 1 and True are equal numbers, and different values of an option. */
static int are_same(PyObject* a, PyObject* b) {
  if (a == b) return 1;
  const int same = Py_TYPE(a) == Py_TYPE(b) ? PyObject_RichCompareBool(a, b, Py_EQ) : 0;
  if (same < 0) PyErr_Clear(); /* the options are then looked at anew, which tells of it */
  return same == 1;
}

int are_pairs_of(PyObject* pairs, PyObject* options) {
  PyObject *name, *value;
  Py_ssize_t at = 0, count = 0;
  while (PyDict_Next(options, &at, &name, &value)) {
    if (value == Py_None) continue;
    if (count == PyTuple_Size(pairs)) return 0;
    PyObject* pair = PyTuple_GetItem(pairs, count++);
    if (!are_same(PyTuple_GetItem(pair, 0), name) || !are_same(PyTuple_GetItem(pair, 1), value)) {
      return 0;
    }
  }
  return count == PyTuple_Size(pairs);
}

PyObject* pairs_of(PyObject* options) {
  PyObject *name, *value, *list = PyList_New(0);
  Py_ssize_t at = 0;
  while (list && PyDict_Next(options, &at, &name, &value)) {
    if (value == Py_None) continue;
    PyObject* pair = PyTuple_Pack(2, name, value);
    if (!pair || PyList_Append(list, pair) != 0) Py_CLEAR(list);
    Py_XDECREF(pair);
  }
  PyObject* out = list ? PyList_AsTuple(list) : NULL;
  Py_XDECREF(list);
  return out;
}
